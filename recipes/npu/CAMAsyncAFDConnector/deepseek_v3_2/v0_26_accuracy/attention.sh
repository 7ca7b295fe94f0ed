#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
#
# DeepSeek-V3.2 over CAM Async: the Attention node, DP2 x TP8 on 16 dies. See README.md.
# shellcheck disable=SC2153 # AFD_HOST comes from the user, it is no misspelt AFD_PORT
set -euo pipefail

# shellcheck source=../../../launch.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../../launch.sh"

: "${API_PORT:=8000}" "${AFD_PORT:=1239}" "${ASYNC_MOE_SPLIT:=token}" "${CAM_OPERATOR_WINDOW:=follow}"
: "${MAX_NUM_BATCHED_TOKENS:=8192}" "${MAX_MODEL_LEN:=8192}" "${MAX_NUM_SEQS:=8}"

require_model "full DeepSeek-V3.2 W8A8 weights"
require_host AFD_HOST
require_port API_PORT
require_port AFD_PORT
require_integer MAX_NUM_BATCHED_TOKENS 1 262144
require_integer MAX_MODEL_LEN 1 163840
require_integer MAX_NUM_SEQS 1 1024
require_match ASYNC_MOE_SPLIT 'token|request' "token or request"
require_match CAM_OPERATOR_WINDOW 'follow|scoped' "follow or scoped"
make_npu_environment
make_cam_hccl_flag "\"operator_window\": \"$CAM_OPERATOR_WINDOW\""

additional_config="{\"cam_hccl\": $cam_hccl_flag, \"afd\": {"
additional_config+='"role": "attention", "connector": "CAMAsyncAFDConnector", "async": true, '
additional_config+="\"host\": \"$AFD_HOST\", \"port\": $AFD_PORT, "
additional_config+='"num_attention_ranks": 16, "num_ffn_ranks": 16, '
additional_config+='"compute_gate_on_attention": true, "connector_extra_config": {'
additional_config+='"dynamicQuant": 1, "attn_ranks_per_dp": 8, "async_moe_ubatching": true, '
additional_config+="\"async_moe_num_ubatches\": 2, \"async_moe_split\": \"$ASYNC_MOE_SPLIT\"}}}"

command=(
  env "${npu_environment[@]}"
  AFD_FORCE_BALANCED_TOPK_IDS=0
  "VLLM_ASCEND_ENABLE_FLASHCOMM1=${VLLM_ASCEND_ENABLE_FLASHCOMM1:-1}"
  vllm serve "$MODEL_PATH"
  --host 0.0.0.0
  --port "$API_PORT"
  --served-model-name deepseek_v3_2
  --trust-remote-code
  --quantization ascend
  --tokenizer-mode deepseek_v32
  --data-parallel-size 2
  --tensor-parallel-size 8
  --enable-expert-parallel
  --enforce-eager
  --max-num-batched-tokens "$MAX_NUM_BATCHED_TOKENS"
  --max-model-len "$MAX_MODEL_LEN"
  --max-num-seqs "$MAX_NUM_SEQS"
  --seed 1024
  --no-enable-prefix-caching
  --gpu-memory-utilization 0.90
  --additional-config "$additional_config"
)
launch "${command[@]}" -- "$@"
