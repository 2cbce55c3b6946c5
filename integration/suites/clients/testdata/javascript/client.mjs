// Does what programs do with @kubernetes/client-node in the namespace that is
// named, and prints what came of each step as a line of JSON.
import * as k8s from '@kubernetes/client-node';
import { createHash } from 'node:crypto';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { PassThrough, Readable } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';

const namespace = process.argv[2];
const pod = 'one';
const container = 'main';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);

async function step(name, work) {
  console.log(JSON.stringify({ step: name, result: await work() }));
}

// later is a promise with its resolve and reject, which fails after a minute.
function later(what) {
  const l = {};
  l.promise = new Promise((resolve, reject) => Object.assign(l, { resolve, reject }));
  const timer = setTimeout(() => l.reject(new Error(`${what}: nothing came for a minute`)), 60_000);
  l.promise.catch(() => {}).finally(() => clearTimeout(timer));
  return l;
}

const configMap = (name, labels, data) => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, labels }, data });
const create = (body) => core.createNamespacedConfigMap({ namespace, body });
const remove = (name) => core.deleteNamespacedConfigMap({ namespace, name });
const patch = (name, body, strategy, more = {}) =>
  core.patchNamespacedConfigMap({ namespace, name, body, ...more }, k8s.setHeaderOptions('Content-Type', strategy));

// refusal is how an error of the apiserver arrives.
async function refusal(call) {
  try {
    await call;
  } catch (err) {
    return [err.code, JSON.parse(err.body).reason];
  }
  return 'no error';
}

await step('whoami', async () => {
  const review = await config.makeApiClient(k8s.AuthenticationV1Api).createSelfSubjectReview({ body: {} });
  return review.status.userInfo.username;
});

await step('list', async () => {
  const list = await core.listNamespacedPod({ namespace, labelSelector: 'app=talker' });
  return list.items.map((p) => p.metadata.name).sort();
});

await step('create, patch and delete', async () => {
  await create(configMap('js', {}, { a: '1' }));
  const seen = [await refusal(create(configMap('js', {}, {})))];
  seen.push((await patch('js', { data: { b: '2' } }, k8s.PatchStrategy.MergePatch)).data);
  seen.push((await patch('js', [{ op: 'remove', path: '/data/a' }], k8s.PatchStrategy.JsonPatch)).data);
  const applied = configMap('js', undefined, { c: '3' });
  seen.push((await patch('js', applied, k8s.PatchStrategy.ServerSideApply, { fieldManager: 'js', force: true })).data);
  const generic = k8s.KubernetesObjectApi.makeApiClient(config);
  seen.push((await generic.read({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'js', namespace } })).data);
  await remove('js');
  seen.push(await refusal(core.readNamespacedConfigMap({ namespace, name: 'js' })));
  return seen;
});

await step('watch', async () => {
  const end = later('watch');
  const seen = [];
  const { metadata: { resourceVersion } } = await core.listNamespacedConfigMap({ namespace });
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const watch = await new k8s.Watch(config).watch(
    path,
    { labelSelector: 'by=js-watch', resourceVersion, allowWatchBookmarks: true },
    (type, object) => {
      seen.push([type, object.data?.a]);
      if (type === 'DELETED') end.resolve();
    },
    (err) => end.reject(err ?? new Error('the watch ended')),
  );
  await create(configMap('js-watch', { by: 'js-watch' }, { a: '1' }));
  await patch('js-watch', { data: { a: '2' } }, k8s.PatchStrategy.MergePatch);
  await remove('js-watch');
  await end.promise;
  watch.abort();
  return seen;
});

await step('informer', async () => {
  const selector = 'by=js-informer';
  await create(configMap('js-before', { by: 'js-informer' }, { a: '1' }));
  const informer = k8s.makeInformer(
    config,
    `/api/v1/namespaces/${namespace}/configmaps`,
    () => core.listNamespacedConfigMap({ namespace, labelSelector: selector }),
    selector,
  );
  const seen = [];
  const waiting = new Map();
  for (const kind of ['add', 'update', 'delete']) {
    informer.on(kind, (object) => {
      const event = `${kind} ${object.metadata.name}`;
      seen.push(event);
      waiting.get(event)?.resolve();
    });
  }
  const expect = (event) => {
    const l = later(`informer, ${event}`);
    waiting.set(event, l);
    return l.promise;
  };
  informer.on('error', (err) => waiting.forEach((l) => l.reject(err)));
  let event = expect('add js-before');
  await informer.start();
  await event;
  event = expect('add js-after');
  await create(configMap('js-after', { by: 'js-informer' }, { a: '1' }));
  await event;
  event = expect('update js-after');
  await patch('js-after', { data: { a: '2' } }, k8s.PatchStrategy.MergePatch);
  await event;
  event = expect('delete js-before');
  await remove('js-before');
  await event;
  const cached = informer.list(namespace).map((o) => [o.metadata.name, o.data.a]);
  await informer.stop();
  await remove('js-after');
  return { seen, cached };
});

// exec runs a command and returns its outputs and how it ended.
async function exec(command, { stdin = null, tty = false, size } = {}) {
  const end = later(`exec ${command}`);
  const stdout = Object.assign(new PassThrough(), size);
  const stderr = tty ? null : new PassThrough();
  const out = buffer(stdout);
  const err = stderr ? text(stderr) : '';
  const socket = await new k8s.Exec(config).exec(namespace, pod, container, command, stdout, stderr, stdin, tty, end.resolve);
  const status = await end.promise;
  const code = status.status === 'Success' ? 0 : Number(status.details.causes.find((c) => c.reason === 'ExitCode').message);
  return { protocol: socket.protocol, stdout: await out, stderr: await err, code };
}

await step('exec', async () => {
  const { protocol, stdout, stderr, code } = await exec(['sh', '-c', 'echo out; echo err >&2; exit 7']);
  return { protocol, stdout: stdout.toString(), stderr, code };
});

await step('exec, 8 MiB of stdin and stdout', async () => {
  const sent = Buffer.alloc(8 << 20, 'client-node\n');
  const pieces = Array.from({ length: 256 }, (_, i) => sent.subarray(i << 15, (i + 1) << 15));
  const { stdout, code } = await exec(['cat'], { stdin: Readable.from(pieces, { objectMode: false }) });
  const digest = (b) => createHash('sha256').update(b).digest('hex');
  return { length: stdout.length, same: digest(stdout) === digest(sent), code };
});

await step('exec, terminal', async () => {
  const { stdout, code } = await exec(['sh', '-c', 'sleep 1; stty size'], { tty: true, size: { rows: 33, columns: 77 } });
  return { stdout: stdout.toString(), code };
});

await step('port-forward', async () => {
  const forward = new k8s.PortForward(config);
  const server = createServer((socket) => {
    forward.portForward(namespace, pod, [8080], socket, null, socket).catch((err) => socket.destroy(err));
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  const ask = async () => {
    const answer = await fetch(`http://127.0.0.1:${server.address().port}/name`, {
      headers: { connection: 'close' }, signal: AbortSignal.timeout(60_000),
    });
    return [answer.status, await answer.text()];
  };
  const answers = await Promise.all(Array.from({ length: 10 }, ask));
  server.close();
  return answers;
});

await step('logs, followed', async () => {
  const stream = new PassThrough();
  const end = later('logs');
  const ticks = [];
  createInterface(stream).on('line', (line) => {
    ticks.push(Number(line.split(' ').at(-1)));
    if (ticks.length === 4) end.resolve();
  });
  const request = await new k8s.Log(config).log(namespace, pod, container, stream, { follow: true, tailLines: 1 });
  await end.promise;
  stream.on('error', () => {});
  request.abort();
  return ticks.map((n) => n - ticks[0]);
});

process.exit(0); // connections that are kept alive would hold it
