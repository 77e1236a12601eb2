"""The OpenAPI document and its page: complete, true, and to be had offline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cudaops.service.problems import KINDS
from cudaops.service.records import EXAMPLES, REQUESTS
from tests.service.api_server import Api, running
from tests.service.test_api_jobs import PlainReports

METHODS = ("get", "post", "head")


@pytest.fixture(scope="module")
def api(new_database: Callable[[], str]) -> Iterator[Api]:
    with running(new_database(), renderer=PlainReports()) as found:
        yield found


@pytest.fixture(scope="module")
def document(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.http.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method]


def test_every_operation_tells_of_itself(document: dict[str, Any]) -> None:
    seen = set()
    for method, path, operation in operations(document):
        assert operation["operationId"] not in seen
        seen.add(operation["operationId"])
        assert operation["summary"], path
        assert operation.get("description"), path
        for status, answer in operation["responses"].items():
            assert answer["description"], (path, status)
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (path, status)
        public = path in ("/healthz", "/readyz", "/version")
        assert ("security" in operation) is not public, (method, path)
    assert {f"/{kind}" for kind in REQUESTS} <= document["paths"].keys()


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def references(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for inner in part.values():
                yield from references(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from references(inner)

    missing = {r for r in references(document) if r.rsplit("/", 1)[-1] not in schemas}
    assert not missing


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_is_a_request(kind: str, document: dict[str, Any]) -> None:
    body = document["paths"][f"/{kind}"]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"]
    for example in body["examples"].values():
        REQUESTS[kind].model_validate(example["value"], strict=False)  # type: ignore[index]


def test_fields_are_described_by_their_docstrings(document: dict[str, Any]) -> None:
    fields = document["components"]["schemas"]["OptimizeRequest"]["properties"]
    assert "as its author wrote it" in fields["source"]["description"]
    assert fields["max_iterations"]["maximum"] == 50


def test_the_page_needs_nothing_from_elsewhere(api: Api, document: dict[str, Any]) -> None:
    page = api.http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script" not in page.text
    assert " style=" not in page.text
    for address in re.findall(r'(?:href|src)="([^"]*)"', page.text):
        assert address.startswith(("/", "#")), address
        if address.startswith("/"):
            assert api.http.get(address).status_code == 200, address
        else:
            assert f'id="{address[1:]}"' in page.text, address
    for _, path, operation in operations(document):
        if operation["operationId"] != "headArtefact":
            assert f'id="{operation["operationId"]}"' in page.text, path
    again = api.http.get("/docs", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304


def test_the_service_s_own_page_is_served(api: Api) -> None:
    page = api.http.get("/")
    assert "<main" in page.text
    for address in re.findall(r'(?:href|src)="(/static/[^"]*)"', page.text):
        found = api.http.get(address)
        assert found.status_code == 200, address
        assert found.headers["cache-control"] == "no-cache"
        assert found.headers["x-content-type-options"] == "nosniff"


def test_every_kind_of_problem_has_a_status_of_an_error() -> None:
    assert all(400 <= kind.status < 600 and kind.title for kind in KINDS.values())
