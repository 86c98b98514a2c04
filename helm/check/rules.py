"""What no schema says: the profile `restricted` of pod security, where secrets may be, what holds on what."""

# Kinds with pods, and the way to these.
PODS = {"Deployment", "StatefulSet", "Job"}
# Types of volumes that the profile allows, of those that there are.
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
# Ends of the names of variables that come from a Secret or not at all.
SECRETS = ("DATABASE_URL", "TOKEN", "KEY", "PASSWORD", "SECRET")
LABELS = ("name", "instance", "component", "version", "part-of", "managed-by")
# What a person chose in ci/*.yaml for secrets; only Secrets may hold it.
GIVEN = ("not-a-secret", "notasecret")


def of_object(document):
    labels = document["metadata"].get("labels", {})
    for label in LABELS:
        if not labels.get(f"app.kubernetes.io/{label}"):
            yield f"the label app.kubernetes.io/{label} is missing"
    if document["kind"] != "Secret" and any(given in str(document) for given in GIVEN):
        yield "a secret lies outside of a Secret"
    if document["kind"] == "ServiceAccount" and document.get("automountServiceAccountToken") is not False:
        yield "its token is mounted"
    if document["kind"] in PODS:
        spec = document["spec"]["template"]["spec"]
        yield from of_pod(spec)
        yield from restricted(spec)
    if document["kind"] in {"Deployment", "StatefulSet"}:
        selector = document["spec"]["selector"]["matchLabels"]
        if not selector.items() <= document["spec"]["template"]["metadata"]["labels"].items():
            yield "its selector does not select its own pods"


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def of_pod(spec):
    """Rules of this chart."""
    if spec.get("automountServiceAccountToken") is not False:
        yield "its pods have a token"
    if spec.get("enableServiceLinks") is not False:
        yield "its pods get variables for each Service, and ASSAY_PORT is one"
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for container in containers(spec):
        name = container["name"]
        if not container["securityContext"].get("readOnlyRootFilesystem"):
            yield f"{name}: its root file system can be written"
        if not {"cpu", "memory"} <= container["resources"]["requests"].keys():
            yield f"{name}: asks for no cpu or memory"
        if "memory" not in container["resources"]["limits"]:
            yield f"{name}: memory has no limit"
        if container["image"].endswith((":", ":latest")):
            yield f"{name}: the image has no version"
        variables = [variable["name"] for variable in container.get("env", [])]
        if len(variables) != len(set(variables)):
            yield f"{name}: a variable is set twice"
        for variable in container.get("env", []):
            if "value" in variable and variable["name"].endswith(SECRETS):
                yield f"{name}: {variable['name']} is not from a Secret"
        for argument in container.get("args", []):
            if "://" in argument and "@" in argument:
                yield f"{name}: {argument.split('=')[0]} holds a password"
        missing = {mount["name"] for mount in container.get("volumeMounts", [])} - volumes
        # Claim templates of a StatefulSet are volumes too; the schema of the chart has two.
        if missing - {"cache", "data"}:
            yield f"{name}: mounts {missing}, which is no volume"


def restricted(spec):
    """The profile `restricted`, field by field: kubernetes.io, Pod Security Standards."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"restricted: {field}"
    for volume in spec.get("volumes", []):
        if not volume.keys() <= VOLUMES | {"name"}:
            yield f"restricted: volume {volume}"
    pod = spec.get("securityContext", {})
    for key in ("sysctls", "seLinuxOptions", "appArmorProfile", "windowsOptions"):
        if key in pod:
            yield f"restricted: {key} of the pod is not looked at"
    for container in containers(spec):
        name, own = container["name"], container.get("securityContext", {})
        both = {**pod, **own}
        if both.get("runAsNonRoot") is not True or both.get("runAsUser", 1) == 0:
            yield f"restricted: {name} may run as root"
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            yield f"restricted: {name} may gain privileges"
        capabilities = own.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
            yield f"restricted: {name} keeps capabilities"
        if both.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
            yield f"restricted: {name} has no seccomp profile"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"restricted: {name} takes a port of the node"
        if "procMount" in own or "seLinuxOptions" in own:
            yield f"restricted: {name} sets procMount or seLinuxOptions"


def of_release(documents):
    """Whether what objects name and select is there."""
    pods = [document for document in documents if document["kind"] in PODS]
    for document in pods:
        place = f"{document['kind']}/{document['metadata']['name']}"
        yield from (f"{place} {finding}" for finding in needs(document, documents))
    labels = [document["spec"]["template"]["metadata"]["labels"].items() for document in pods]
    for document in documents:
        # The names of workers are there without workers too.
        if document["kind"] == "Service" and document["spec"].get("clusterIP") != "None":
            if not any(document["spec"]["selector"].items() <= pod for pod in labels):
                yield f"Service/{document['metadata']['name']} selects nothing"
    policies = [
        document["spec"]["podSelector"]["matchLabels"].items()
        for document in documents
        if document["kind"] == "NetworkPolicy"
    ]
    for document, pod in zip(pods, labels):
        if policies and not any(policy <= pod for policy in policies):
            yield f"{document['kind']}/{document['metadata']['name']} has no network policy"


def needs(document, documents):
    """Whether there is what pods need, and in time for those that come before the release."""
    spec = document["spec"]["template"]["spec"]
    wanted = {("ServiceAccount", spec["serviceAccountName"])}
    for container in containers(spec):
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                wanted.add(("Secret", variable["valueFrom"]["secretKeyRef"]["name"]))
    for volume in spec.get("volumes", []):
        if "persistentVolumeClaim" in volume:
            wanted.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
    # A name without the release's is of what exists already.
    wanted = {(kind, name) for kind, name in wanted if name.startswith("demo-")}
    there = {(other["kind"], other["metadata"]["name"]): is_hook(other) for other in documents}
    for kind, name in sorted(wanted):
        if (kind, name) not in there:
            yield f"needs the {kind} {name}, which nobody makes"
        elif is_hook(document) and not there[kind, name]:
            yield f"comes before the {kind} {name}"


def is_hook(document):
    return "helm.sh/hook" in document["metadata"].get("annotations", {})
