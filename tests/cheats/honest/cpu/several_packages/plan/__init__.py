from .bands import Plan

__all__ = ["Plan"]
