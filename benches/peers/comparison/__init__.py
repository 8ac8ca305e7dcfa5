"""The proxy beside its peers; see ../run."""
