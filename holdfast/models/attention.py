"""Attention with keyed dropout, for the passes in which PyTorch's own would draw from a generator."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.models.dropout import drop_units


def attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Compute what ``F.scaled_dot_product_attention`` does, with the same arguments.

    Args:
        query: [batch, ..., length, size].
        key: [batch, ..., other length, size].
        value: [batch, ..., other length, size].
        attn_mask: What is added to the scores, or where to attend.
        dropout_p: The probability of dropping a weight.
        is_causal: Whether positions see only themselves and earlier ones.
        scale: The factor on the scores; by default the inverse root of the size.
        enable_gqa: Whether several query heads share a head of keys and values.

    Returns:
        The mean of the values, by attention.
    """
    if enable_gqa:
        shared = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    return (drop_units(weights, dropout_p) if dropout_p else weights) @ value


def attention_weights(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return the softmax of the scores, before any of them is dropped.

    Args:
        query: [batch, ..., length, size].
        key: [batch, ..., other length, size].
        attn_mask: What is added to the scores, or where to attend.
        is_causal: Whether positions see only themselves and earlier ones.
        scale: The factor on the scores; by default the inverse root of the size.

    Returns:
        The weights, [batch, ..., length, other length].
    """
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal and attn_mask is None:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return torch.softmax(scores, -1)


def attend_with_projections(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True,
    key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
    average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Compute what ``F.multi_head_attention_forward`` does, with the same arguments."""
    if bias_k is not None or static_k is not None or static_v is not None or add_zero_attn or query.dim() != 3:
        raise HoldfastError(
            "nn.MultiheadAttention with bias_k, add_zero_attn or without a batch axis can neither drop units nor be "
            "batched over clients; use --engine loop and set its dropout to 0"
        )
    projections = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else (in_proj_weight.chunk(3) if in_proj_weight is not None else (None, None, None))
    )
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    heads = []
    for x, weight, bias in zip((query, key, value), projections, biases, strict=True):
        assert weight is not None
        length, batch, _ = x.shape
        projected = F.linear(x, weight, bias)
        heads.append(projected.reshape(length, batch, num_heads, -1).permute(1, 2, 0, 3))
    q, k, v = heads
    where = _joint_mask(attn_mask, key_padding_mask, num_heads, q.dtype)
    weights = attention_weights(q, k, where, is_causal and where is None)
    weights = drop_units(weights, dropout_p) if training and dropout_p else weights
    mixed = (weights @ v).permute(2, 0, 1, 3).flatten(2)
    out = F.linear(mixed, out_proj_weight, out_proj_bias)
    if not need_weights:
        return out, None
    return out, weights.mean(1) if average_attn_weights else weights


def _joint_mask(attn: Tensor | None, padding: Tensor | None, heads: int, dtype: torch.dtype) -> Tensor | None:
    """Join both masks of ``nn.MultiheadAttention``, in which true means *not* to attend, to one that is added."""
    total: Tensor | None = None
    if attn is not None:
        total = _added(attn, dtype)
        if total.dim() == 3:
            total = total.reshape(-1, heads, *total.shape[1:])
    if padding is not None:
        hidden = _added(padding, dtype)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
