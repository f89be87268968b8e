"""The OpenAPI document: what clients read, put together from routes, tasks and the models that are served."""
