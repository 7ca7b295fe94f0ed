# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
#
# Sourced by the launch scripts: checks the variables they are given, then starts the
# command, or prints it with DRY_RUN=1. HCCL_BUFFSIZE is not touched anywhere.

# refuse NAME GIVEN ALLOWED: one line on stderr, exit status 2.
refuse() {
  printf '%s: %s: given %s, allowed is %s\n' "${0##*/}" "$1" "${2:-nothing}" "$3" >&2
  exit 2
}

require() { # NAME WHAT
  [[ -n "${!1:-}" ]] || refuse "$1" "" "$2"
}

require_match() { # NAME PATTERN WHAT
  local LC_ALL=C # so that A-Z is ASCII
  require "$1" "$3"
  [[ "${!1}" =~ ^($2)$ ]] || refuse "$1" "'${!1}'" "$3"
}

require_integer() { # NAME LOW HIGH
  local allowed="an integer from $2 to $3"
  require_match "$1" '0|[1-9][0-9]{0,8}' "$allowed"
  ((${!1} >= $2 && ${!1} <= $3)) || refuse "$1" "'${!1}'" "$allowed"
}

require_port() { # NAME
  require_integer "$1" 1 65535
}

ipv6='[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*'

require_host() { # NAME
  require_match "$1" "[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|$ipv6" "an IP address or host name"
}

require_ip() { # NAME
  local octet='(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
  require_match "$1" "(${octet}[.]){3}${octet}|$ipv6" "an IP address"
}

require_model() { # WHAT: MODEL_PATH, and nothing that vLLM would take for an option
  require_match MODEL_PATH '[^-].*' "the directory of the $1"
}

require_interface() { # NAME
  require_match "$1" '[A-Za-z0-9_][A-Za-z0-9._-]{0,14}' "the name of a network interface"
}

require_devices() { # NAME COUNT
  local allowed="$2 different device numbers with commas between them" number numbers seen=()
  require_match "$1" "[0-9]{1,3}(,[0-9]{1,3}){$(($2 - 1))}" "$allowed"
  IFS=, read -ra numbers <<<"${!1}"
  for number in "${numbers[@]}"; do
    seen[10#$number]=1
  done
  ((${#seen[@]} == $2)) || refuse "$1" "'${!1}'" "$allowed"
}

# The plugins that vLLM may load. A list of the user's own is never extended: vLLM takes
# it as it is, and without cam_hccl in it the CAM groups would not be sized.
require_plugins() {
  local name
  VLLM_PLUGINS="${VLLM_PLUGINS-ascend,afd,cam_hccl}"
  for name in ascend afd cam_hccl; do
    [[ ",$VLLM_PLUGINS," == *",$name,"* ]] || refuse VLLM_PLUGINS "'$VLLM_PLUGINS'" \
      "a list with $name in it, without spaces, e.g. ascend,afd,cam_hccl (or leave it unset)"
  done
}

# make_cam_hccl_flag PAIRS: fills cam_hccl_flag, the JSON object that switches the plugin on,
# with PAIRS and one fixed size for the CAM groups of this role if CAM_BUFFER_MB is set.
make_cam_hccl_flag() {
  local pairs="$1"
  if [[ -n "${CAM_BUFFER_MB:-}" ]]; then
    require_integer CAM_BUFFER_MB 1 32768
    pairs+="${pairs:+, }\"buffer_size_mb\": $CAM_BUFFER_MB"
  fi
  # shellcheck disable=SC2034 # the scripts read it
  cam_hccl_flag="{$pairs}"
}

# Fills npu_environment with what every role of every recipe needs. A tuning value that the
# user has set stays; LOCAL_IP and NIC_NAME decide where HCCL and Gloo talk.
make_npu_environment() {
  require_ip LOCAL_IP
  require_interface NIC_NAME
  require_plugins
  : "${ASCEND_RT_VISIBLE_DEVICES:=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}"
  require_devices ASCEND_RT_VISIBLE_DEVICES 16
  # shellcheck disable=SC2034 # the scripts read it
  npu_environment=(
    "VLLM_PLUGINS=$VLLM_PLUGINS"
    "ASCEND_RT_VISIBLE_DEVICES=$ASCEND_RT_VISIBLE_DEVICES"
    "HCCL_IF_IP=$LOCAL_IP"
    "HCCL_SOCKET_IFNAME=$NIC_NAME"
    "GLOO_SOCKET_IFNAME=$NIC_NAME"
    "TP_SOCKET_IFNAME=$NIC_NAME"
    "HCCL_OP_EXPANSION_MODE=${HCCL_OP_EXPANSION_MODE:-AIV}"
    "OMP_PROC_BIND=${OMP_PROC_BIND:-false}"
    "OMP_NUM_THREADS=${OMP_NUM_THREADS:-10}"
    "PYTORCH_NPU_ALLOC_CONF=${PYTORCH_NPU_ALLOC_CONF:-expandable_segments:True}"
    "VLLM_ASCEND_ENABLE_MLAPO=${VLLM_ASCEND_ENABLE_MLAPO:-1}"
  )
}

# launch COMMAND... -- EXTRA...: runs COMMAND EXTRA, or prints it with DRY_RUN=1. EXTRA are
# the script's own arguments, more options for vllm serve.
launch() {
  local command=() word option taken
  while [[ "$1" != -- ]]; do
    command+=("$1")
    shift
  done
  shift
  for word in "$@"; do
    [[ "$word" == --* ]] || continue
    option="${word%%[=.]*}"
    option="${option//_/-}"
    for taken in "${command[@]}"; do
      # vLLM takes an abbreviated option too, so a beginning of ours is ours.
      [[ "$taken" != "$option"* ]] || refuse "argument $word" "after the script's name" \
        "any vllm serve option but $taken, which the recipe sets itself"
    done
  done
  command+=("$@")
  for word in "${command[@]}"; do
    [[ "$word" != *[[:cntrl:]]* ]] || refuse "the command" "a word with a line break or tab" \
      "words on one line; write JSON without line breaks"
  done
  case "${DRY_RUN:-0}" in
    0) exec "${command[@]}" ;;
    1) print_command "${command[@]}" ;;
    *) refuse DRY_RUN "'$DRY_RUN'" "0 or 1" ;;
  esac
}

# One line that a shell can run. Single quotes rather than printf %q, which makes JSON
# unreadable and in the C locale writes letters beyond ASCII in a way only bash reads.
print_command() {
  local LC_ALL=C word quote="'" line=()
  for word in "$@"; do
    if [[ ! "$word" =~ ^[A-Za-z0-9_%+=:,./@-]+$ ]]; then
      word="$quote${word//$quote/$quote\\$quote$quote}$quote"
    fi
    line+=("$word")
  done
  printf '%s\n' "${line[*]}"
}
