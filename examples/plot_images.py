"""
Images
======

Each image is a row of pixels. Fair components of images are images themselves, and so is what is taken out. The pictures
here are drawn by the example: faces with and without glasses.
"""

# %%
# Draw 600 faces. Skin, light and the place of the eyes vary; half of them wear glasses.

import matplotlib.pyplot as plt
import numpy as np

from fairstream import FairImagePCA

rng = np.random.default_rng(0)
height, width, n = 32, 28, 600
y, x = np.mgrid[:height, :width]


def face(glasses):
    """Draw one face, red, green and blue."""
    skin = np.array([0.9, 0.7, 0.6]) * rng.uniform(0.5, 1.0)
    across, down = rng.normal(0, 1.0, 2)
    oval = ((x - 13.5 - across) / 10) ** 2 + ((y - 16 - down) / 14) ** 2 < 1
    picture = np.where(oval[None], skin[:, None, None], rng.uniform(0, 0.5))
    for side in (-4.5, 4.5):
        far = np.hypot(x - 13.5 - across - side, y - 12 - down)
        picture[:, far < 1.5] = 0.1
        if glasses:
            picture[:, (far > 2.7) & (far < 4.2)] = 0.05
    mouth = (np.abs(x - 13.5 - across) < rng.uniform(2, 5)) & (np.abs(y - 23 - down) < 1)
    picture[:, mouth] = np.array([0.7, 0.2, 0.2])[:, None]
    light = 1 + rng.normal(0, 0.1) * (x - 13.5) / 14
    return np.clip(255 * picture * light + rng.normal(0, 6, picture.shape), 0, 255)


wears = rng.choice(["glasses", "none"], n)
X = np.stack([face(label == "glasses").ravel() for label in wears]).astype(np.uint8)

# %%
# A model for each colour channel, in one pass.

fair = FairImagePCA(n_components=20, n_unfair=2, directions="relative").fit(
    X, sensitive_features={"wears": wears}
)
plain = FairImagePCA(n_components=20, constraint="none").fit(X, sensitive_features={"wears": wears})


def show(axis, row):
    """Show a row as a picture."""
    axis.imshow(row.reshape(3, height, width).transpose(1, 2, 0).clip(0, 255).astype(np.uint8))
    axis.set_axis_off()


shown = [int(i) for i in [*np.flatnonzero(wears == "glasses")[:4], *np.flatnonzero(wears == "none")[:4]]]
figure, axes = plt.subplots(3, 8, figsize=(9, 4.2))
for column, i in enumerate(shown):
    show(axes[0, column], X[i])
    show(axes[1, column], plain.inverse_transform(plain.transform(X[[i]]))[0])
    show(axes[2, column], fair.inverse_transform(fair.transform(X[[i]]))[0])
for axis, title in zip(
    axes[:, 0], ["the picture", "from 20 plain components", "from 20 fair components"], strict=True
):
    axis.set_title(title, fontsize=9, loc="left")
figure.tight_layout()
plt.show()

# %%
# In the last row the glasses are neither there nor not there: everybody has a trace of them.
