"""Turning batches into weights, and a run into a folder."""
