"""The OpenAPI document, built from routes, tasks and the models that are served."""
