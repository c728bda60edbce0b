#!/usr/bin/env python3
"""nginx with kvroute and the same nginx with least_conn: CPU time of the worker
per request, in turns A B A B, and instructions in user space by callgrind.
Prints tables and writes wire.json.

    wire.py [PART...]     parts: cpu streams memory count one peers clients

BEFORE=FILE.so compares instructions per request with those of another build of
the module, and writes wire-before.json.
"""

import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'common'))

from chart import bars
import harness
import rig
from harness import (BIN, FULL, Nginx, load, load_end, load_start, pin, save,
                     upstream)
from places import MODULE, modules
from rig import cpu, median, memory

DIR = rig.RESULTS

PAIRS = 31 if FULL else 15

SIZES = [('2k', 2048, 3000), ('32k', 32768, 1200), ('256k', 262144, 240),
         ('2m', 2097152, 48)]

# replies that are learned, also with their tokens in the log

STREAMS = [('plain', {}),
           ('usage', {'http': "log_format tokens '$kvroute_prompt_tokens "
                              "$kvroute_cached_tokens "
                              "$kvroute_completion_tokens';",
                      'log': '/dev/null tokens'})]

# cases that need no prompt: with a single peer there is no choice

UNPARSED = [('one peer', {}, 1),
            ('least_request',
             {'policy': 'kvroute least_request zone=bench'}, 4)]

# clients other than load.c: h2load; its "--h1" is HTTP/1.1

CLIENTS = [('HTTP/1.1', 'http', ['--h1']), ('HTTP/2', 'http', []),
           ('HTTP/1.1, TLS', 'https', ['--h1']), ('HTTP/2, TLS', 'https', [])]

first = 1


def turn(nginx, size, n, kind, unique, **kw):
    """Returns CPU microseconds per request, and requests per second."""
    global first

    before = cpu(nginx.pid)
    r = kw['client'](nginx, n) if 'client' in kw else load(
        port=nginx.port, size=size, requests=n, kind=kind, unique=unique,
        first=first, **kw)
    spent = cpu(nginx.pid) - before
    first += n

    if r['errors']:
        raise SystemExit('%d of %d requests failed' % (r['errors'], n))

    return spent / n * 1e6, n / r['seconds']


def pairs(a, b, size, n, kind='code', unique=0, count=PAIRS, **kw):
    """Returns medians: of A, of the difference B - A, of the ratio, and of the
    ratio of requests per second."""
    turn(a, size, n, kind, unique, **kw)
    turn(b, size, n, kind, unique, **kw)

    plain, added, ratio, speed = [], [], [], []

    for i in range(count):
        if i % 2:
            y = turn(b, size, n, kind, unique, **kw)
            x = turn(a, size, n, kind, unique, **kw)
        else:
            x = turn(a, size, n, kind, unique, **kw)
            y = turn(b, size, n, kind, unique, **kw)

        plain.append(x[0])
        added.append(y[0] - x[0])
        ratio.append(y[0] / x[0])
        speed.append(y[1] / x[1])

    return median(plain), median(added), median(ratio), median(speed)


def row(name, r):
    print('%-24s %10.1f %10.1f %8.3f %8.3f' % ((name,) + r), flush=True)


def together(a, b, streams, chunks, count):
    """Returns the same medians for two that run at the same time, so that other
    work affects both, and the standard error of the ratio."""
    global first

    plain, added, ratio = [], [], []
    target = '/v1/chat/completions?chunks=%d&us=1000' % chunks
    n = streams * chunks

    for i in range(count + 1):
        pair = (b, a) if i % 2 else (a, b)
        before = [cpu(x.pid) for x in pair]
        clients = [load_start(port=x.port, size=2048, requests=streams,
                              conns=streams, target=target, first=first)
                   for x in pair]
        first += streams

        for c in clients:
            if load_end(c)['errors']:
                raise SystemExit('a stream failed')

        spent = [(cpu(x.pid) - y) / n * 1e6 for x, y in zip(pair, before)]
        x, y = reversed(spent) if i % 2 else spent

        # the first round warms up

        if i:
            plain.append(x)
            added.append(y - x)
            ratio.append(y / x)

    ratio.sort()
    quarters = ratio[(3 * count) // 4] - ratio[count // 4]

    return (median(plain), median(added), median(ratio),
            quarters / 1.35 * 1.25 / count ** 0.5)


def cpu_part(results):
    engines = upstream(4)
    a = Nginx(engines, True)
    b = Nginx(engines, False)

    # nginx compared with itself, and with a minimal module

    controls = {'twice': Nginx(engines, True),
                'no-op': Nginx(engines, True, control='none'),
                'xxh3': Nginx(engines, True, control='xxh3')}

    added = results['added_us'] = {}
    ratios = results['cpu_ratio'] = {}
    plain = results['plain_us'] = {}
    control = results['control_us'] = {}
    speed = results['rps_ratio'] = {}

    print('CPU of the worker a request, us; medians of %d pairs' % PAIRS)
    print('%-24s %10s %10s %8s %8s' % ('', 'least_conn', 'added', 'ratio',
                                       'rps'))

    for name, size, n in SIZES:
        added[name], ratios[name], speed[name] = {}, {}, {}
        plain[name] = {}

        for what, unique in (('repeated', 0), ('unique', 1)):
            r = pairs(a, b, size, n, 'code', unique)
            plain[name][what] = r[0]
            added[name][what] = r[1]
            ratios[name][what] = r[2]
            speed[name][what] = r[3]
            row('%s code %s' % (name, what), r)

        control[name] = {}

        for what, x in controls.items():
            r = pairs(a, x, size, n, 'code', 1)
            control[name][what] = r[1]
            row('%s control, %s' % (name, what), r)

    results['kinds'] = {}

    for kind in ('prose', 'messages'):
        for name, size, n in SIZES if FULL else SIZES[1:3]:
            r = pairs(a, b, size, n, kind)
            results['kinds']['%s %s' % (name, kind)] = r[1]
            row('%s %s' % (name, kind), r)

    for x in [a, b] + list(controls.values()):
        x.stop()

    # the buffer fits the head exactly, so the body is in a buffer of its own

    a = Nginx(engines, True, head='512')
    b = Nginx(engines, False, head='512')
    r = pairs(a, b, 32768, 1200)
    results['kinds']['32k code, one buffer'] = r[1]
    row('32k code, one buffer', r)
    a.stop()
    b.stop()

    if FULL:
        a = Nginx(engines, True, workers=2)
        b = Nginx(engines, False, workers=2)
        r = pairs(a, b, 32768, 1200)
        results['kinds']['32k code, two workers'] = r[1]
        row('32k code, two workers', r)
        a.stop()
        b.stop()


def one_part(results):
    """Cases that need no prompt: a single peer, or a policy without a use for
    it."""
    engines = upstream(4)
    results['unparsed_ratio'] = {}

    for name, kw, n in UNPARSED:
        a = Nginx(engines[:n], True)
        b = Nginx(engines[:n], False, **kw)
        r = pairs(a, b, 32768, 1200)
        results['unparsed_ratio'][name] = r[2]
        row('32k ' + name, r)
        a.stop()
        b.stop()


def peers_part(results):
    results['peers_us'] = {}

    for n in (4, 64):
        engines = upstream(n)
        a = Nginx(engines, True)
        b = Nginx(engines, False, policy='kvroute kv_cache zone=bench')
        r = pairs(a, b, 2048, 3000)
        results['peers_us'][str(n)] = r[1]
        row('2k, %d peers' % n, r)
        a.stop()
        b.stop()


def clients_part(results):
    """Repeats a prompt of 32 KB, with other versions of HTTP."""
    if not shutil.which('h2load'):
        print('clients: h2load is not installed')
        return

    engines = upstream(4)
    found = results['clients'] = {}
    body = DIR + '/clients.json'
    key = DIR + '/clients'

    with open(body, 'w') as f:
        f.write('{"model":"m","messages":[{"role":"user","content":"%s"}]}'
                % ' '.join('word%d' % (i * i % 7919) for i in range(3800)))

    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes',
                    '-subj', '/CN=localhost', '-days', '2', '-keyout',
                    key + '.key', '-out', key + '.pem'], check=True,
                   stderr=subprocess.DEVNULL)

    for name, scheme, args in CLIENTS:
        listen = ('%s %s; ssl_certificate %s.pem; ssl_certificate_key %s.key;'
                  % ('ssl' if scheme == 'https' else '',
                     '' if args else 'http2', key, key))

        def client(nginx, n):
            begin = time.time()
            out = subprocess.run(
                ['h2load', '-n', str(n), '-c', '8', *args, '-d', body, '-H',
                 'Content-Type: application/json', '%s://127.0.0.1:%d/'
                 'v1/chat/completions' % (scheme, nginx.also)],
                stdout=subprocess.PIPE, text=True, check=True).stdout
            good = int(re.search(r'status codes: (\d+) 2xx', out)[1])
            return {'errors': n - good, 'seconds': time.time() - begin}

        a = Nginx(engines, True, listen=listen)
        b = Nginx(engines, False, listen=listen)
        r = pairs(a, b, 32768, 1200, client=client)
        found[name] = {'plain_us': r[0], 'added_us': r[1], 'ratio': r[2]}
        row('32k ' + name, r)
        a.stop()
        b.stop()


def streams_part(results):
    """Sixteen replies at once, of 2,000 events each, one per millisecond."""
    engines = upstream(4)
    ratios = results['stream_chunk_ratio'] = {}
    sure = results['stream_chunk_error'] = {}
    count = 31 if FULL else 15

    print('streams of 2,000 chunks, us of CPU a chunk with the kernel\'s part; '
          'two at a time')

    for what, kw in [('twice', None)] + STREAMS:
        a = Nginx(engines, True)
        b = Nginx(engines, kw is None, **(kw or {}))
        r = together(a, b, 8, 2000, count)
        print('%-24s %10.3f %10.3f %8.3f +- %.3f' % ((what,) + r), flush=True)

        if kw is None:
            results['stream_chunk_control'] = r[2]
        else:
            ratios[what] = r[2]

        sure[what] = r[3]
        a.stop()
        b.stop()


def memory_part(results):
    """Returns the bytes of an open stream beyond those of plain nginx."""
    found = results['stream_bytes'] = {}

    for n in (64, 1000, 10000) if FULL else (64, 1000):
        per = []

        for plain in (True, False):
            engines = upstream(4)
            x = Nginx(engines, plain, workers=2)

            # open one stream first, so that one-time allocations are done

            load(port=x.port, requests=200, conns=32, size=2048)
            before = memory(x.pid)

            clients = load_start(port=x.port, conns=n, requests=n, size=2048,
                                 hold=1, target='/v1/chat/completions?hold')
            clients.process.stdout.readline()
            per.append((memory(x.pid) - before) / n)
            clients.stop()
            x.stop()

        found[str(n)] = {'plain': per[0], 'added': per[1] - per[0]}
        print('%5d open streams: %.0f bytes each, kvroute adds %.0f'
              % (n, per[0], per[1] - per[0]), flush=True)


def count_part(results):
    """Counts nginx's instructions per request; other work does not change
    them."""
    engines = upstream(4)
    found = results['instructions'] = {}

    print('instructions of nginx a request (callgrind, without the kernel)')

    for name, size, n in SIZES:
        n = max(n // 40, 8)
        found[name] = {}

        # plain nginx treats all bodies alike

        v = slope(engines, True, size, n)

        for what, unique in (('repeated', 0), ('unique', 1)):
            x = slope(engines, False, size, n, unique) - v
            found[name][what] = {'plain': v, 'added': x}
            print('%-24s %10.0f %10.0f' % ('%s %s' % (name, what), v, x),
                  flush=True)

    # cases that need no prompt

    ratios = results['unparsed_instruction_ratio'] = {}

    for name, conf, n in UNPARSED:
        v = slope(engines[:n], True, 32768, 30)
        x = slope(engines[:n], False, 32768, 30, conf=conf)
        ratios[name] = x / v
        print('%-24s %10.0f %10.0f %8.3f' % ('32k ' + name, v, x - v, x / v),
              flush=True)

    # the cost of comparing servers, by kvroute_eject

    v = slope(engines, False, 2048, 60,
              conf={'policy': 'kvroute kv_cache zone=bench; kvroute_eject off'})
    x = slope(engines, False, 2048, 60) - v
    found['ejection'] = x
    print('%-24s %10.0f %10.0f' % ('2k kvroute_eject', v, x), flush=True)

    # slowly: if several chunks arrive together, nginx has less to do for each

    def chunk(plain, conf={}):
        few, many = (instructions(engines, plain, 2048, 1, conf=conf,
                                  target='/v1/chat/completions?us=4000'
                                         '&chunks=%d' % n)
                     for n in (50, 350))
        return (many - few) / 300

    v = chunk(True)
    found['chunk'] = {'plain': v}
    ratios = results['stream_chunk_instruction_ratio'] = {}

    for what, kw in STREAMS:
        x = chunk(False, kw)
        found['chunk'][what] = x - v
        ratios[what] = x / v
        print('%-24s %10.0f %10.0f %8.3f' % ('a chunk of a stream, ' + what, v,
                                             x - v, x / v), flush=True)


def instructions(engines, plain, size, n, unique=0, conf={}, **kw):
    """Returns all instructions of nginx for n requests, its start included."""
    alike = ('env', 'LD_PRELOAD=%s/alike.so' % BIN)

    def run(prefix):
        x = Nginx(engines, plain, **conf, prefix=alike + prefix)
        load(port=x.port, requests=n, size=size, unique=unique, conns=1, **kw)
        x.stop()

    return rig.instructions(run)


def slope(engines, plain, size, n, unique=0, conf={}):
    few = instructions(engines, plain, size, 4, unique, conf)
    return (instructions(engines, plain, size, n + 4, unique, conf) - few) / n


def compare(before):
    """Compares the instructions of another build of the module with those of
    this one."""
    engines = upstream(8)
    found = {}
    harness.MODULE = BIN + '/counted.so'

    # this build with the extensions that KVROUTE_MODULES names

    more = modules(MODULE)[1:] if 'KVROUTE_MODULES' in os.environ else []

    print('%-24s %10s %10s %8s' % ('instructions a request', 'before', 'now',
                                   'ratio'))

    for name, size, n in (('2k', 2048, 300), ('32k', 32768, 100)):
        for what, unique in (('repeated', 0), ('unique', 1)):
            row = found['%s %s' % (name, what)] = {}

            for key, module in (('before', before), ('now', MODULE)):

                # names of the same length: another length would move all other
                # allocations

                shutil.copy(module, harness.MODULE)

                for file in modules(harness.MODULE)[1:]:
                    os.remove(file)

                for file in more if key == 'now' else []:
                    shutil.copy(file, BIN)

                row[key] = slope(engines, False, size, n, unique)

            row['ratio'] = row['now'] / row['before']
            print('%-24s %10.0f %10.0f %8.4f'
                  % ('%s %s' % (name, what), row['before'], row['now'],
                     row['ratio']), flush=True)

    save('wire-before.json', {'requests': found})


def plots(results):
    """Draws the results as SVG, beside the JSON."""
    sizes = [name for name, size, n in SIZES]

    def rows(found, what):
        return [found.get(name, {}).get(what) for name in sizes]

    if 'added_us' in results:
        bars(DIR + '/wire.svg', 'CPU added to a request', 'us', sizes,
             [('repeated', rows(results['added_us'], 'repeated')),
              ('unique', rows(results['added_us'], 'unique')),
              ('one XXH3 pass', rows(results['control_us'], 'xxh3'))])

    if 'instructions' in results:
        found = results['instructions']
        flat = {n: {'plain': found[n]['repeated']['plain'],
                    'repeated': found[n]['repeated']['added'],
                    'unique': found[n]['unique']['added']} for n in sizes}
        bars(DIR + '/wire-instructions.svg', 'nginx, and what is added to it',
             'instructions a request', sizes,
             [('added, repeated', rows(flat, 'repeated')),
              ('added, unique', rows(flat, 'unique')),
              ('nginx', rows(flat, 'plain'))])


PARTS = {'cpu': cpu_part, 'one': one_part, 'peers': peers_part,
         'clients': clients_part, 'streams': streams_part,
         'memory': memory_part, 'count': count_part}


def main():
    results = {}
    begin = time.time()
    pin()

    if os.environ.get('BEFORE'):
        compare(os.path.abspath(os.environ['BEFORE']))
        return

    for name in sys.argv[1:] or PARTS:
        PARTS[name](results)
        plots(results)

        results['seconds'] = round(time.time() - begin)
        save('wire.json' if not sys.argv[1:] else 'wire-part.json', results)


if __name__ == '__main__':
    main()
