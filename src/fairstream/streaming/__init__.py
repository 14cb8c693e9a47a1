"""Fits over streams: one machine or a cluster, checkpoints, embeddings written out."""
