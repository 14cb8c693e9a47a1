"""What a model, moments or checkpoint file holds, as plain data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairstream.channels import FairImagePCA
from fairstream.channels_model import ChannelSubspaces
from fairstream.estimator import FairStreamingPCA
from fairstream.model import FairSubspace
from fairstream.moments import GroupMoments
from fairstream.persist import PathLike, build, read_file


def inspect_file(path: PathLike) -> dict[str, Any]:
    """Return what a file says about itself: kind, parameters, rows, groups, versions. Checks it on the way.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     GroupMoments(3).update(np.eye(3), {"sex": ["f", "m", "m"]}).save(Path(folder, "a.moments"))
    ...     inspect_file(Path(folder, "a.moments"))["groups"]
    {'sex': {'f': 1, 'm': 2}}
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
        if "checkpoint" in about["state"]:
            facts["checkpoint"] = about["state"]["checkpoint"]
    return facts


def subspace_facts(subspace: FairSubspace | ChannelSubspaces) -> dict[str, Any]:
    """Return the figures of a fair subspace that a reader wants first; some of them for each channel."""
    parameters = {name: value for name, value in subspace.parameters.items() if name != "encoding"}
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
        "groups": _with_text_keys(subspace.group_counts),
    }


def moments_facts(moments: GroupMoments) -> dict[str, Any]:
    """Return the figures of group moments that a reader wants first."""
    counts = {a: {g: moments.count(a, g) for g in labels} for a, labels in moments.groups.items()}
    return {
        "n_rows": moments.n_rows,
        "n_features": moments.n_features,
        "rank": moments.rank,
        "lost_energy": moments.lost_energy,
        "groups": _with_text_keys(counts),
    }


def channel_moments_facts(channels: Sequence[GroupMoments]) -> dict[str, Any]:
    """Return the figures of the moments of several channels: rows and groups are the same in all."""
    return {
        **moments_facts(channels[0]),
        "n_features": sum(moments.n_features for moments in channels),
        "lost_energy": [moments.lost_energy for moments in channels],
    }


def _with_text_keys(counts: Mapping[str, Mapping[Hashable, int | float]]) -> dict[str, dict[str, Any]]:
    return {attribute: {str(label): n for label, n in of.items()} for attribute, of in counts.items()}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
