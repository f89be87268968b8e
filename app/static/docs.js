// Inference first. The validator is switched off because it would send the document to another host.
const ORDER = ["inference", "models", "graph", "trials", "health"];
const place = (tag) => (ORDER.includes(tag) ? ORDER.indexOf(tag) : ORDER.length);
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#routes",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
  tagsSorter: (one, other) => place(one) - place(other) || one.localeCompare(other),
});
