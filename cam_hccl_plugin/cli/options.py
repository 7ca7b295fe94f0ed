# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Options that the subcommands share.

Every option defaults to ``None``, so that "not given" can be told from a default;
:mod:`cam_hccl_plugin.cli.from_options` applies the defaults.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any

from cam_hccl_plugin.cli.argument_types import buffer_mb, positive, ratio, zero_or_one
from cam_hccl_plugin.settings import MAX_HEADROOM, MIN_HEADROOM, SCOPES, SIZINGS, Settings


def add_model(parser: argparse.ArgumentParser) -> None:
    """Options that give the model's shape."""
    group = parser.add_argument_group("model: --model, --model-shape, or the three numbers")
    group.add_argument(
        "--model", metavar="DIR_OR_CONFIG_JSON", help="read the Hugging Face config.json"
    )
    group.add_argument(
        "--model-shape", metavar="NAME", help="a well-known model, e.g. deepseek-v3.2"
    )
    group.add_argument("--hidden-size", type=positive, metavar="N", help="elements per token")
    group.add_argument("--topk", type=positive, metavar="N", help="routed experts per token")
    group.add_argument("--routed-experts", type=positive, metavar="N", help="routed experts")


def add_deployment(parser: argparse.ArgumentParser) -> None:
    """Options that give connector, ranks and tokens."""
    group = parser.add_argument_group("deployment, if no command is given")
    group.add_argument(
        "--connector",
        metavar="CLASS",
        help="AFD connector class: CAMAsyncAFDConnector, CAMP2pAFDConnector, another CAM* class "
        "or one that an installed extension claims",
    )
    group.add_argument(
        "--attention-ranks", type=positive, metavar="A", help="Attention dies, all nodes"
    )
    group.add_argument("--ffn-ranks", type=positive, metavar="F", help="FFN dies, all nodes")
    group.add_argument(
        "--max-num-batched-tokens",
        type=positive,
        metavar="N",
        help="of Attention, and of FFN unless --ffn-max-num-batched-tokens is given",
    )
    group.add_argument(
        "--ffn-max-num-batched-tokens",
        type=positive,
        metavar="N",
        help="of FFN; CAMP2P: A x batch / F. CAM Async needs the same value on both roles",
    )
    _add_attention_groups(parser.add_argument_group("Attention DP groups, ubatches, quantization"))


def _add_attention_groups(group: Any) -> None:
    group.add_argument(
        "--npus-per-dp-group",
        type=positive,
        metavar="N",
        help="NPUs in one Attention DP group (TP x PCP); never divides the CAMP2P FFN size "
        "(default: 1)",
    )
    group.add_argument(
        "--attn-ranks-per-dp",
        type=positive,
        metavar="N",
        help="as in connector_extra_config, CAM Async's operators divide by it "
        "(default: the value of --npus-per-dp-group)",
    )
    group.add_argument(
        "--num-ubatches",
        type=positive,
        metavar="N",
        help="ubatches: CAMP2P has one group for each, 2 with --enable-dbo (default: 1)",
    )
    group.add_argument(
        "--dynamic-quant",
        type=zero_or_one,
        metavar="{0,1}",
        help="dynamic quantization (default: 0)",
    )


def add_sizing(parser: argparse.ArgumentParser) -> None:
    """Options of the flag, and of the device."""
    default = Settings()
    group = parser.add_argument_group("sizing, as in the cam_hccl flag")
    group.add_argument(
        "--sizing",
        choices=SIZINGS,
        help="auto: published need x headroom, never below the operators' need; published: without "
        f"that floor; operator: operators' need x headroom (default: {default.sizing})",
    )
    group.add_argument(
        "--headroom",
        type=ratio(MIN_HEADROOM, MAX_HEADROOM),
        metavar="X",
        help=f"factor on the need, {MIN_HEADROOM} to {MAX_HEADROOM} (default: 1.1)",
    )
    group.add_argument(
        "--scope",
        choices=SCOPES,
        help="role: each role its own size; group: one size for all ranks of a group "
        f"(default: {default.scope})",
    )
    _add_memory(parser.add_argument_group("device memory"))


def _add_memory(memory: Any) -> None:
    memory.add_argument(
        "--device-memory-gib",
        type=ratio(Fraction(0), low_allowed=False),
        metavar="GIB",
        help="memory of one die; with it the memory guard runs",
    )
    memory.add_argument(
        "--gpu-memory-utilization",
        type=ratio(Fraction(0), Fraction(1), low_allowed=False),
        metavar="X",
        help="as given to vLLM, above 0, up to 1 (default: 0.9)",
    )
    memory.add_argument(
        "--memory-guard-ratio",
        type=ratio(Fraction(0)),
        metavar="X",
        help="memory wanted outside the utilization, in role-local buffers; 0 wants only what the "
        "groups take (default: 2.5)",
    )


def add_variables(parser: argparse.ArgumentParser) -> None:
    """Options for the two environment variables."""
    group = parser.add_argument_group("environment variables")
    group.add_argument(
        "--hccl-buffsize",
        type=buffer_mb,
        metavar="MB",
        help="the HCCL_BUFFSIZE that you use today: prints what is saved against it, and whether "
        "the binary operator package would work with it (default: the environment's)",
    )
    group.add_argument(
        "--lccl-buffer-size",
        type=buffer_mb,
        metavar="MB",
        help="the LCCL_BUFFER_SIZE of operators built from source, checked likewise "
        "(default: the environment's)",
    )
