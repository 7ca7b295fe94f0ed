#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
#
# DeepSeek-V3.2 decode over CAMP2P: one Attention node, 16 of 48 or 64 dies. See README.md.
# shellcheck disable=SC2153 # AFD_HOST comes from the user, it is no misspelt AFD_PORT
set -euo pipefail

# shellcheck source=../../launch.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../launch.sh"

: "${API_PORT:=8006}" "${AFD_PORT:=29666}" "${DP_RPC_PORT:=13377}"

require_model "DeepSeek-V3.2 W8A8 weights"
require_match ATTENTION_RANKS '48|64' "48 or 64, the Attention dies of all nodes"
require_match INPUT_LENGTH '16384|32768' "16384 or 32768"
case "$INPUT_LENGTH" in
  16384) batch=28 max_model_len=18432 ;;
  32768) batch=14 max_model_len=34816 ;;
esac
: "${BATCH_SIZE:=$batch}"
require_match BATCH_SIZE "$batch" "$batch, per Attention rank with INPUT_LENGTH=$INPUT_LENGTH"
case "$ATTENTION_RANKS" in
  48) first_ranks='0|16|32' ;;
  64) first_ranks='0|16|32|48' ;;
esac
require_match DP_START_RANK "$first_ranks" "this node's first Attention rank, one of $first_ranks"
require_host DP_ADDRESS
require_host AFD_HOST
require_port API_PORT
require_port DP_RPC_PORT
require_port AFD_PORT
make_npu_environment
make_cam_hccl_flag ""

additional_config="{\"cam_hccl\": $cam_hccl_flag, \"afd\": {"
additional_config+='"role": "attention", "connector": "CAMP2pAFDConnector", '
additional_config+="\"host\": \"$AFD_HOST\", \"port\": $AFD_PORT, "
additional_config+="\"num_attention_ranks\": $ATTENTION_RANKS, \"num_ffn_ranks\": 16}}"

compilation_config='{"cudagraph_mode": "FULL_DECODE_ONLY", '
compilation_config+="\"cudagraph_capture_sizes\": [$BATCH_SIZE]}"

command=(
  env "${npu_environment[@]}"
  vllm serve "$MODEL_PATH"
  --host 0.0.0.0
  --port "$API_PORT"
  --served-model-name deepseek_v3_2
  --trust-remote-code
  --quantization ascend
  --tokenizer-mode deepseek_v32
  --data-parallel-size "$ATTENTION_RANKS"
  --data-parallel-size-local 16
  --data-parallel-start-rank "$DP_START_RANK"
  --data-parallel-address "$DP_ADDRESS"
  --data-parallel-rpc-port "$DP_RPC_PORT"
  --tensor-parallel-size 1
  --enable-expert-parallel
  --max-num-batched-tokens "$BATCH_SIZE"
  --max-num-seqs "$BATCH_SIZE"
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
# Only the node with DP rank 0 serves the API.
if [[ "$DP_START_RANK" != 0 ]]; then
  command+=(--headless)
fi
launch "${command[@]}" -- "$@"
