"""The service: jobs over HTTP, kept in PostgreSQL, done by workers (docs/service.md)."""
