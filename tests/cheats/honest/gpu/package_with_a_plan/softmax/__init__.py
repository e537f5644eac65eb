from .host import launch

__all__ = ["launch"]
