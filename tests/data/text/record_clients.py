"""Record the requests of clients for embeddings: LangChain, llama-index, and huggingface_hub for text-embeddings-inference.

    pip install langchain-openai llama-index-embeddings-openai-like llama-index-embeddings-text-embeddings-inference \
        huggingface_hub
    python tests/data/text/record_clients.py        writes clients.json beside this file

A server of the standard library answers in the form that each client expects, and keeps what it was sent.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEXTS = ["The cat sat on the mat, and the dog slept.", "In Vienna it rains; in Zürich the sun shines."]
KEPT = ("accept", "accept-encoding", "authorization", "content-type", "user-agent")
requests: list[dict[str, Any]] = []


class Recorder(BaseHTTPRequestHandler):
    """Keep each request, and answer vectors of four numbers."""

    protocol_version = "HTTP/1.1"
    client = ""

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        headers = {key.lower(): value for key, value in self.headers.items() if key.lower() in KEPT}
        requests.append({"client": Recorder.client, "path": self.path, "headers": headers, "body": body})
        document = json.loads(body)
        texts = document.get("input", document.get("inputs"))
        count, vector = (len(texts) if isinstance(texts, list) else 1), [0.5] * 4
        answer: Any = [vector] * count
        if self.path.startswith("/v1"):
            packed = base64.b64encode(struct.pack("<4f", *vector)).decode()
            value = packed if document.get("encoding_format") == "base64" else vector
            data = [{"object": "embedding", "index": at, "embedding": value} for at in range(count)]
            answer = {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def clients(url: str) -> dict[str, Any]:
    """Return a function for each client that embeds the texts, or the first of them."""
    from huggingface_hub import InferenceClient
    from langchain_openai import OpenAIEmbeddings
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    langchain = OpenAIEmbeddings(
        model="embedding", base_url=f"{url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    llama = OpenAILikeEmbedding(model_name="embedding", api_base=f"{url}/v1", api_key="none")
    llama_tei = TextEmbeddingsInference(model_name="embedding", base_url=url, text_instruction="", query_instruction="")
    hub = InferenceClient(model=url)
    return {
        "langchain documents": lambda: langchain.embed_documents(TEXTS),
        "langchain query": lambda: [langchain.embed_query(TEXTS[0])],
        "llama-index documents": lambda: llama.get_text_embedding_batch(TEXTS),
        "llama-index query": lambda: [llama.get_query_embedding(TEXTS[0])],
        "llama-index TEI documents": lambda: llama_tei.get_text_embedding_batch(TEXTS),
        "llama-index TEI query": lambda: [llama_tei.get_query_embedding(TEXTS[0])],
        "huggingface_hub": lambda: hub.feature_extraction(TEXTS[0]).tolist(),
        "huggingface_hub truncate": lambda: hub.feature_extraction(TEXTS[0], normalize=True, truncate=True).tolist(),
    }


def main() -> None:
    """Write clients.json."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, embed in clients(f"http://127.0.0.1:{server.server_port}").items():
        Recorder.client = name
        embed()
    text = json.dumps({"texts": TEXTS, "requests": requests}, indent=1, ensure_ascii=False)
    Path(__file__).with_name("clients.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
