#!/usr/bin/env python3
"""Renders the Helm chart and validates each object against the schemas of Kubernetes and of the Prometheus operator.

The schemas are in the Go modules k8s.io/kubernetes (OpenAPI) and github.com/prometheus-operator/prometheus-operator (resource
definitions). A field that a schema does not know is an error. Values that the chart must refuse are tried as well.
"""

import json
import subprocess
import sys
import tempfile

import jsonschema
import yaml

from support import PROCESSOR, REPOSITORY, go_module, package, tool, version

KUBERNETES = "1.34.2"
PROMETHEUS_OPERATOR = "v0.85.0"
CHART = REPOSITORY / "packaging/helm/fireteam"
CHECKS = REPOSITORY / "packaging/checks"
RULESET = REPOSITORY / "rulesets/ranked_duel.xml"

# Arguments of `helm template`, and the objects that must come out.
RENDERINGS = [
    (
        ["--values", CHECKS / "chart-values-tls.yaml", "--set-file", rf"rulesets.files.duel\.xml={RULESET}"],
        ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "Service", "ServiceMonitor"],
    ),
    (
        ["--values", CHECKS / "chart-values-plaintext.yaml"],
        ["Deployment", "PodDisruptionBudget", "Service", "Service", "ServiceMonitor"],
    ),
]
# Arguments that must be refused, and a part of the error.
REFUSALS = [
    ([], "tls.secret is missing"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "plaintext.trustedProxies={10.0.0.0/8}"], "use one"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "store.secret="], "store.secret is missing"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "keys.secret="], "keys.secret is missing"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "auth.issuer="], "auth.issuer is missing"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "auth.secret="], "auth.secret is missing"),
    (["--values", CHECKS / "chart-values-tls.yaml", "--set", "image.repository="], "image.repository is missing"),
]


def helm_template(arguments: list) -> subprocess.CompletedProcess:
    command = [tool("helm"), "template", "studio", CHART, "--namespace", "games", "--kube-version", KUBERNETES, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def strict(schema: object) -> object:
    """The same schema, in which objects have no unknown fields, and Kubernetes' own formats are written as JSON schema."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    result = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type", "object") == "object":
        result.setdefault("additionalProperties", False)
    return result


def schemas_by_kind() -> dict[tuple[str, str], dict]:
    """Schema of each kind, by apiVersion and kind."""
    text = (go_module(f"k8s.io/kubernetes@v{KUBERNETES}") / "api/openapi-spec/swagger.json").read_text()
    definitions = strict(json.loads(text)["definitions"])
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    schemas = {}
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            api_version = f"{kind['group']}/{kind['version']}".removeprefix("/")
            schemas[api_version, kind["kind"]] = {"$ref": f"#/definitions/{name}", "definitions": definitions}
    folder = go_module(f"github.com/prometheus-operator/prometheus-operator@{PROMETHEUS_OPERATOR}") / "example/prometheus-operator-crd"
    resource = yaml.safe_load((folder / "monitoring.coreos.com_servicemonitors.yaml").read_text())
    schema = strict(resource["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    # The definition says only that these are objects; the API server fills in their schema.
    schema["properties"]["metadata"] = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    schemas["monitoring.coreos.com/v1", "ServiceMonitor"] = schema | {"definitions": definitions}
    return schemas


def problems_of(manifest: dict, schemas: dict) -> list[str]:
    key = manifest.get("apiVersion"), manifest.get("kind")
    if key not in schemas:
        return [f"{key}: no such kind in Kubernetes {KUBERNETES}"]
    errors = jsonschema.Draft4Validator(schemas[key]).iter_errors(manifest)
    return [f"{manifest['kind']} {error.json_path}: {error.message[:300]}" for error in errors]


def configuration_problems(manifests: list[dict]) -> list[str]:
    """The server accepts the arguments and variables of the Deployment: it prints its configuration with them."""
    archive = package(f"fireteam-{version()}-{PROCESSOR}-linux-musl.tar.gz")
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
        program = f"{folder}/{archive.name.removesuffix('.tar.gz')}/fireteam"
        for manifest in (it for it in manifests if it["kind"] == "Deployment"):
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            # The value of a secret is not in the chart.
            variables = {it["name"]: it.get("value", "postgres://fireteam@database/fireteam") for it in container["env"]}
            command = [program, *container["args"], "--print-config"]
            printed = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            if printed.returncode != 0:
                problems.append(f"the server refuses the arguments of the Deployment: {printed.stderr}")
    return problems


def check_that_unknown_fields_are_found(manifests: list[dict], schemas: dict) -> list[str]:
    """The validation itself: a misspelled field and a wrong type in each object are found."""
    problems = []
    for manifest in manifests:
        body = "data" if manifest["kind"] == "ConfigMap" else "spec"
        misspelled = manifest | {f"{body}s": {}}
        wrong_type = manifest | {body: "text"}
        for damaged in (misspelled, wrong_type):
            if not problems_of(damaged, schemas):
                problems.append(f"{manifest['kind']}: a damaged object passed the validation")
    return problems


def main() -> None:
    subprocess.run([tool("helm"), "lint", "--strict", "--kube-version", KUBERNETES, CHART, *RENDERINGS[0][0]], check=True)
    schemas = schemas_by_kind()
    problems = []
    for arguments, kinds in RENDERINGS:
        rendered = helm_template(arguments)
        if rendered.returncode != 0:
            sys.exit(rendered.stderr)
        manifests = [manifest for manifest in yaml.safe_load_all(rendered.stdout) if manifest]
        if sorted(manifest["kind"] for manifest in manifests) != kinds:
            problems.append(f"expected {kinds}, rendered {sorted(manifest['kind'] for manifest in manifests)}")
        for manifest in manifests:
            problems += problems_of(manifest, schemas)
        problems += check_that_unknown_fields_are_found(manifests, schemas)
        problems += configuration_problems(manifests)
        rulesets = [manifest["data"]["duel.xml"] for manifest in manifests if manifest["kind"] == "ConfigMap"]
        if any(xml.strip() != RULESET.read_text().strip() for xml in rulesets):
            problems.append("the ruleset in the ConfigMap differs from the file")
        if not problems:
            print(f"{len(manifests)} objects are valid for Kubernetes {KUBERNETES}: {', '.join(kinds)}; the server accepts its settings")
    for arguments, expected in REFUSALS:
        rendered = helm_template(arguments)
        if rendered.returncode == 0 or expected not in rendered.stderr:
            problems.append(f"{arguments} must be refused with {expected!r}: {rendered.stderr}")
    print(f"{len(REFUSALS)} incomplete sets of values were tried")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
