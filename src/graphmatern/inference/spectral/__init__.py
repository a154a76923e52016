"""Any kernel, through eigenpairs."""
