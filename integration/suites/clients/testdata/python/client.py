"""Does what programs do with the Python client in the namespace that is named,
and prints what came of each step as a line of JSON."""

import hashlib
import http.client
import json
import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

NAMESPACE = sys.argv[1]
POD = "one"

config.load_kube_config()
core = client.CoreV1Api()


def step(name):
    """Runs a function at once and prints its result."""

    def run(work):
        print(json.dumps({"step": name, "result": work()}), flush=True)

    return run


def config_map(name, labels, data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data}


def refusal(call, *args, **kwargs):
    """Returns how an error of the apiserver arrives."""
    try:
        call(*args, **kwargs)
    except ApiException as err:
        return [err.status, json.loads(err.body)["reason"]]
    return "no error"


@step("list")
def _():
    pods = core.list_namespaced_pod(NAMESPACE, label_selector="app=talker")
    return sorted(p.metadata.name for p in pods.items)


@step("list in pages")
def _():
    names, token = [], None
    while True:
        page = core.list_namespaced_pod(NAMESPACE, label_selector="app=talker", limit=1, _continue=token)
        names.append([p.metadata.name for p in page.items])
        token = page.metadata._continue
        if not token:
            return names


@step("create, patch and delete")
def _():
    core.create_namespaced_config_map(NAMESPACE, config_map("py", {}, {"a": "1"}))
    seen = [refusal(core.create_namespaced_config_map, NAMESPACE, config_map("py", {}, {}))]
    seen.append(core.patch_namespaced_config_map("py", NAMESPACE, {"data": {"b": "2"}}).data)
    seen.append(core.patch_namespaced_config_map("py", NAMESPACE, [{"op": "remove", "path": "/data/a"}]).data)
    core.delete_namespaced_config_map("py", NAMESPACE)
    seen.append(refusal(core.read_namespaced_config_map, "py", NAMESPACE))
    return seen


@step("watch with a timeout")
def _():
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def change():
        core.create_namespaced_config_map(NAMESPACE, config_map("py-watch", {"by": "py"}, {"a": "1"}))
        core.patch_namespaced_config_map("py-watch", NAMESPACE, {"data": {"a": "2"}})
        core.delete_namespaced_config_map("py-watch", NAMESPACE)

    changing = threading.Timer(1, change)
    changing.start()
    # The stream ends by itself when the apiserver ends the watch.
    events = watch.Watch().stream(
        core.list_namespaced_config_map, NAMESPACE,
        label_selector="by=py", resource_version=version, timeout_seconds=8, _request_timeout=60,
    )
    seen = [[e["type"], e["object"].data["a"]] for e in events]
    changing.join()
    return seen


def run(command, stdin=None, **options):
    """Runs a command in the pod and returns its outputs and exit code."""
    s = stream(
        core.connect_get_namespaced_pod_exec, POD, NAMESPACE, container="main", command=command,
        stdin=stdin is not None, stdout=True, stderr=True, tty=False, _preload_content=False, **options,
    )
    if stdin is not None:
        s.write_stdin(stdin)
    s.run_forever(timeout=60)
    return {"stdout": s.read_stdout(timeout=1), "stderr": s.read_stderr(timeout=1), "code": s.returncode}


@step("exec")
def _():
    return run(["sh", "-c", "echo out; echo err >&2; exit 7"])


@step("exec, 1 MiB of stdin and stdout")
def _():
    # This client speaks v4.channel.k8s.io, which cannot close standard input.
    sent = "client-python 16" * (1 << 16)
    out = run(["head", "-c", str(len(sent))], stdin=sent)
    digest = [hashlib.sha256(text.encode()).hexdigest() for text in (sent, out["stdout"])]
    return {"length": len(out["stdout"]), "same": digest[0] == digest[1], "code": out["code"]}


@step("exec, its output at once")
def _():
    return stream(
        core.connect_get_namespaced_pod_exec, POD, NAMESPACE, container="main", command=["hostname"],
        stdin=False, stdout=True, stderr=True, tty=False,
    )


@step("exec, a pod that is absent")
def _():
    try:
        stream(core.connect_get_namespaced_pod_exec, "absent", NAMESPACE, command=["true"], stdout=True)
    except ApiException as err:
        return "404 Not Found" in err.reason  # its status is always 0
    return "no error"


@step("port-forward")
def _():
    forwarded = portforward(core.connect_get_namespaced_pod_portforward, POD, NAMESPACE, ports="8080")
    connection = http.client.HTTPConnection("pod", 8080, timeout=60)
    connection.sock = forwarded.socket(8080)
    connection.request("GET", "/name", headers={"Connection": "close"})
    answer = connection.getresponse()
    return [answer.status, answer.read().decode(), forwarded.error(8080)]


@step("logs, followed")
def _():
    answer = core.read_namespaced_pod_log(
        POD, NAMESPACE, container="main", follow=True, tail_lines=1, _preload_content=False, _request_timeout=60,
    )
    ticks, rest = [], b""
    while len(ticks) < 4:
        # A stream of urllib3 would wait for a full buffer.
        rest += answer.read1() if hasattr(answer, "read1") else answer.read(1)
        *lines, rest = rest.split(b"\n")
        ticks += [int(line.split()[-1]) for line in lines]
    answer.close()
    return [n - ticks[0] for n in ticks[:4]]


api = dynamic.DynamicClient(client.ApiClient())


@step("dynamic client")
def _():
    reviews = api.resources.get(api_version="authentication.k8s.io/v1", kind="SelfSubjectReview")
    review = reviews.create(body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    config_maps = api.resources.get(api_version="v1", kind="ConfigMap")
    config_maps.create(body=config_map("py-dynamic", {}, {"a": "1"}), namespace=NAMESPACE)
    body = {"metadata": {"name": "py-dynamic"}, "data": {"b": "2"}}
    patched = config_maps.patch(body=body, namespace=NAMESPACE, content_type="application/merge-patch+json")
    version = config_maps.get(namespace=NAMESPACE).metadata.resourceVersion
    config_maps.delete(name="py-dynamic", namespace=NAMESPACE)
    events = config_maps.watch(
        namespace=NAMESPACE, field_selector="metadata.name=py-dynamic", resource_version=version, timeout=3,
    )
    return [review.status.userInfo.username, dict(patched.data), [e["type"] for e in events]]


@step("server-side apply")
def _():
    config_maps = api.resources.get(api_version="v1", kind="ConfigMap")

    def apply(data, manager, **options):
        # This version writes the content type of an apply for texts alone.
        body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "py-apply"}, "data": data})
        return config_maps.server_side_apply(
            body=body, name="py-apply", namespace=NAMESPACE, field_manager=manager, **options,
        )

    apply({"a": "1"}, "one")
    seen = []
    try:
        apply({"a": "2"}, "two")
    except dynamic.exceptions.ConflictError as err:
        seen.append(err.status)
    applied = apply({"a": "2", "b": "2"}, "two", force_conflicts=True)
    seen.append([dict(applied.data), sorted(m.manager for m in applied.metadata.managedFields)])
    config_maps.delete(name="py-apply", namespace=NAMESPACE)
    return seen
