"""Rollouts: engines that turn requests into attempts. `engine.TorchEngine` generates, `scripted` pretends to.

Nothing is imported here: the Torch engine loads torch and transformers, the scripted one must not.
"""
