"""The JSON schemas by which kubeconform judges objects: of the kinds of Kubernetes, from its swagger.json, and
of custom resources, from their definitions as JSON. Fields that a schema does not name are refused.

    schemas.py FOLDER swagger.json [CRD.json ...]
"""

import json
import pathlib
import sys

REFERENCE = "#/definitions/"
EITHER = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
# What swagger calls text, and YAML may write as a number.
QUANTITY = {"anyOf": [{"type": "string"}, {"type": "number"}]}


def main(folder, swagger, *customs):
    definitions = json.loads(pathlib.Path(swagger).read_text())["definitions"]
    for name in list(definitions):
        if name.endswith(".api.resource.Quantity"):
            definitions[name] = QUANTITY
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            bundle = {"definitions": {other: strict(definitions[other]) for other in reached(name, definitions)}}
            write(folder, kind["group"] or kind["version"], kind["version"], kind["kind"], {"$ref": REFERENCE + name, **bundle})
    for custom in customs:
        spec = json.loads(pathlib.Path(custom).read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            write(folder, spec["group"], version["name"], spec["names"]["kind"], schema)


def reached(name, definitions):
    """The names of all that a definition is made of."""
    found, left = set(), [name]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += references(definitions[name])
    return sorted(found)


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REFERENCE)
        for inner in schema.values():
            yield from references(inner)


def strict(schema):
    """Without prose, and closed."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return EITHER
    closed = {}
    for key, inner in schema.items():
        if key == "properties":
            closed[key] = {name: strict(field) for name, field in inner.items()}
        elif key in ("items", "additionalProperties"):
            closed[key] = strict(inner)
        elif key in ("anyOf", "allOf", "oneOf"):
            closed[key] = [strict(one) for one in inner]
        elif key in ("$ref", "type", "required", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern"):
            closed[key] = inner
    if closed.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    return closed


def write(folder, group, version, kind, schema):
    path = pathlib.Path(folder, group, f"{kind.lower()}_{version}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(schema))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
