#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
#
# DeepSeek-V3.2 decode over CAMP2P: the FFN node, EP16 on 16 dies. See README.md.
# shellcheck disable=SC2153 # AFD_HOST comes from the user, it is no misspelt AFD_PORT
set -euo pipefail

# shellcheck source=../../launch.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../launch.sh"

: "${API_PORT:=8006}" "${AFD_PORT:=29666}"

require_model "DeepSeek-V3.2 W8A8 weights"
require_match ATTENTION_RANKS '48|64' "48 or 64, the Attention dies of all nodes"
require_match INPUT_LENGTH '16384|32768' "16384 or 32768"
case "$INPUT_LENGTH" in
  16384) batch=28 max_model_len=18432 ;;
  32768) batch=14 max_model_len=34816 ;;
esac
: "${BATCH_SIZE:=$batch}"
require_match BATCH_SIZE "$batch" "$batch, per Attention rank with INPUT_LENGTH=$INPUT_LENGTH"
require_host AFD_HOST
require_port API_PORT
require_port AFD_PORT
make_npu_environment
make_cam_hccl_flag ""

ffn_ranks=16
ffn_batch=$((ATTENTION_RANKS * BATCH_SIZE / ffn_ranks))

additional_config="{\"cam_hccl\": $cam_hccl_flag, \"afd\": {"
additional_config+='"role": "ffn", "connector": "CAMP2pAFDConnector", '
additional_config+="\"host\": \"$AFD_HOST\", \"port\": $AFD_PORT, "
additional_config+="\"num_attention_ranks\": $ATTENTION_RANKS, \"num_ffn_ranks\": $ffn_ranks}}"

compilation_config='{"cudagraph_mode": "FULL_DECODE_ONLY", '
compilation_config+="\"cudagraph_capture_sizes\": [$ffn_batch]}"

command=(
  env "${npu_environment[@]}"
  vllm serve "$MODEL_PATH"
  --host 0.0.0.0
  --port "$API_PORT"
  --served-model-name deepseek_v3_2
  --trust-remote-code
  --quantization ascend
  --tokenizer-mode deepseek_v32
  --data-parallel-size "$ffn_ranks"
  --tensor-parallel-size 1
  --enable-expert-parallel
  --max-num-batched-tokens "$ffn_batch"
  --max-num-seqs "$ffn_batch"
  --max-model-len "$max_model_len"
  --enable-dbo
  --ubatch-size 2
  --dbo-decode-token-threshold 2
  --dbo-prefill-token-threshold 12
  --compilation-config "$compilation_config"
  --async-scheduling
  --seed 1024
  --no-enable-prefix-caching
  --gpu-memory-utilization 0.93
  --additional-config "$additional_config"
)
launch "${command[@]}" -- "$@"
