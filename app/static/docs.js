// Nothing is asked of other hosts: the validator of Swagger's makers, which would see the document, is left out.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#routes",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
});
