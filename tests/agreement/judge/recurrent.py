"""Recurrent layers, step by step."""

from __future__ import annotations
