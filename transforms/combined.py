def looks_like(lines): return False
