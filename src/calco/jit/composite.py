from calco.tracing import composite

__all__ = ["composite"]
