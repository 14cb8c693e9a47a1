"""What a model, moments or checkpoint file holds, as plain data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairstream.data.small_groups import MIN_GROUP_SIZE, Counts, row_level_caution
from fairstream.estimators.images import FairImagePCA
from fairstream.estimators.pca import FairStreamingPCA
from fairstream.files.format import PathLike, build, read_file
from fairstream.moments import GroupMoments
from fairstream.subspace.channels import ChannelSubspaces
from fairstream.subspace.model import FairSubspace


def inspect_file(path: PathLike) -> dict[str, Any]:
    """Return what a file says about itself: kind, parameters, rows, groups, versions. Checks it on the way.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     moments = GroupMoments(3).update(np.eye(60, 3), {"sex": ["f", "m", "m"] * 20})
    ...     moments.save(Path(folder, "a.moments"))
    ...     inspect_file(Path(folder, "a.moments"))["groups"]
    {'sex': {'f': 20, 'm': 40}}
    """
    about, arrays = read_file(path)
    held = build(path, about, arrays)
    facts = {
        "file": str(path),
        "bytes": Path(path).stat().st_size,
        "kind": about["kind"],
        "format_version": about["format_version"],
        "versions": about["versions"],
    }
    if isinstance(held, FairSubspace | ChannelSubspaces):
        return facts | subspace_facts(held)
    if isinstance(held, GroupMoments):
        return facts | moments_facts(held)
    if isinstance(held, FairStreamingPCA | FairImagePCA):
        facts |= {"parameters": held.get_params(deep=False)}
        moments = getattr(held, "moments_", None)
        if isinstance(moments, tuple):
            facts |= channel_moments_facts(moments)
        elif moments is not None:
            facts |= moments_facts(moments)
        one = held.estimators_[0] if isinstance(held, FairImagePCA) else held
        facts |= _caution(*one.seen_counts(), held.min_group_size)
        if "checkpoint" in about["state"]:
            record = about["state"]["checkpoint"]
            facts["checkpoint"] = {name: value for name, value in record.items() if name != "digest"}
    return facts


def subspace_facts(subspace: FairSubspace | ChannelSubspaces) -> dict[str, Any]:
    """Return the figures of a fair subspace that a reader wants first; some of them for each channel."""
    published = subspace.publishable()
    parameters = {name: value for name, value in subspace.parameters.items() if name != "encoding"}
    withheld = {a: [*map(str, labels)] for a, labels in published.withheld_groups.items()}
    by_channel: dict[str, Any] = {}
    if isinstance(subspace, ChannelSubspaces):
        gaps = subspace.residual_mean_gaps()
        by_channel = {
            "n_channels": subspace.n_channels,
            "n_removed": [len(U) for U in subspace.unfair_basis],
            "channel_explained_variance_ratio": [
                float(channel.explained_variance_ratio.sum()) for channel in subspace.channels
            ],
            "channel_residual_mean_gap": {name: [of[name] for of in gaps] for name in gaps[0]},
        }
    return {
        "n_rows": subspace.n_rows,
        "n_features": subspace.n_features,
        "n_components": subspace.n_components,
        "n_removed": len(subspace.unfair_basis),
        **by_channel,
        "explained_variance_ratio": float(subspace.explained_variance_ratio.sum()),
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "groups": _with_text_keys(published.group_counts),
        **({"withheld_groups": withheld} if withheld else {}),
    }


def moments_facts(moments: GroupMoments) -> dict[str, Any]:
    """Return the figures of group moments that a reader wants first."""
    return {
        "n_rows": moments.n_rows,
        "n_features": moments.n_features,
        "rank": moments.rank,
        "lost_energy": moments.lost_energy,
        "groups": _with_text_keys(moments.group_counts),
        **_caution(moments.group_counts, moments.n_rows),
    }


def channel_moments_facts(channels: Sequence[GroupMoments]) -> dict[str, Any]:
    """Return the figures of the moments of several channels: rows and groups are the same in all."""
    return {
        **moments_facts(channels[0]),
        "n_features": sum(moments.n_features for moments in channels),
        "lost_energy": [moments.lost_energy for moments in channels],
    }


def _caution(
    counts: Counts, n_rows: int | float, min_group_size: int = MIN_GROUP_SIZE
) -> dict[str, str | None]:
    return {"caution": row_level_caution(counts, n_rows, min_group_size)}


def _with_text_keys(counts: Mapping[str, Mapping[Hashable, int | float]]) -> dict[str, dict[str, Any]]:
    return {attribute: {str(label): n for label, n in of.items()} for attribute, of in counts.items()}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
