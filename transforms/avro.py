MAGIC=b"Obj\x01"
