#!/usr/bin/env python3
"""Runs bench/micro, prints a table and writes DIR/micro.json.  Counts
instructions with callgrind if the CPU's counter is not available.

    run.py PROGRAM DIR

BEFORE=COMMIT compares instructions with those of a commit, or of another tree's
program, and writes DIR/micro-before.json.  ONLY=TEXT runs the cases whose names
contain the text.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'common'))

from chart import bars
from rig import save, totals

SHOWN = ('lookup', 'refresh', 'insert', 'choose')

WORST = 3       # limit: a bad shape's cost per byte, over the usual one

# cases of large fleets, and the case of a smaller fleet to compare with
BESIDE = {'lookup 128 held by 400': 'lookup 128 held by 60'}


def count(program):
    """Returns instructions per call, by case; empty without valgrind."""
    if not shutil.which('valgrind'):
        return {}

    found = {}

    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(['valgrind', '-q', '--tool=callgrind',
                        '--callgrind-out-file=%s/out' % tmp, program, 'count'],
                       check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

        for name in glob.glob(tmp + '/out*'):
            with open(name) as f:
                text = f.read()

            case = re.search(r'^desc: Trigger: Client Request: (\d+) (.*)$',
                             text, re.M)

            if case:
                found[case[2]] = totals(text) / int(case[1])

    return found


def shapes(cases):
    """Prints the cost of bodies with bad shapes; returns those above the
    limit."""
    bad = []
    each = {n: c['instructions'] / c['units'] for n, c in cases.items()
            if 'instructions' in c}

    print('%-28s %12s %8s %8s' % ('shape', 'instr. a byte', 'x usual',
                                  'x text'))

    for name, c in cases.items():
        usual = c.get('usual')

        if usual not in each or name not in each:
            continue

        c['ratio'] = each[name] / each[usual]
        c['ratio_text'] = each[name] / each['usual text']
        print('%-28s %13.2f %8.2f %8.2f  %s'
              % (name, each[name], c['ratio'], c['ratio_text'], usual))

        if c['ratio'] > WORST:
            bad.append(name)

    return bad


def compare(before, program, out):
    """Compares the instructions of two programs, for cases that both have."""
    then, now = count(before), count(program)
    cases = {}

    print('%-28s %12s %12s %8s' % ('instructions a call', 'before', 'now',
                                   'ratio'))

    for name in sorted(now):
        old = BESIDE.get(name, name)

        if old in then:
            cases[name] = {'before': then[old], 'now': now[name],
                           'ratio': now[name] / then[old]}
            print('%-28s %12.0f %12.0f %8.3f  %s'
                  % (name, then[old], now[name], cases[name]['ratio'],
                     '' if old == name else 'before: ' + old))

    save(out, {'cases': cases})


def built(before, build):
    """Returns the program to compare with; builds it if name is a commit."""
    if os.path.exists(before):
        return before

    out = subprocess.run([os.path.join(os.path.dirname(__file__), 'before.sh'),
                          before, os.path.join(build, 'before-' + before)],
                         check=True, stdout=subprocess.PIPE, text=True)

    return out.stdout.strip()


def main():
    program, build = sys.argv[1:3]

    if os.environ.get('BEFORE'):
        compare(built(os.environ['BEFORE'], build), program,
                os.path.join(build, 'micro-before.json'))
        return

    out = os.path.join(build, 'micro.json')

    subprocess.run([program, out], check=True)

    with open(out) as f:
        results = json.load(f)

    cases = results['cases']
    results['instructions_by'] = 'processor'

    if not any('instructions' in c for c in cases.values()):
        results['instructions_by'] = 'callgrind'

        for name, n in count(program).items():
            cases[name]['instructions'] = n

    print('%-28s %12s %10s %10s  %s' % ('case', 'ns a call', 'ns',
                                        'instr.', 'per'))

    for name, c in cases.items():
        if 'usual' in c:
            continue

        n = c.get('instructions')
        print('%-28s %12.1f %10.4f %10s  %s'
              % (name, c['ns'], c['ns_per'],
                 '%.3f' % (n / c['units']) if n else '-', c['per']))

    bad = shapes(cases)

    two = results['two_processes']
    kept = results['kept']

    print('two processes: index %.2f x one, arithmetic %.2f x'
          % (two['index'], two['control']))
    print('table %.0f%% full: %.2f%% of matched bytes kept, %.1f bytes a line'
          % (kept['fill'] * 100, kept['matched_share'] * 100,
             kept['bytes_a_line']))
    snap = results['snapshot']
    print('snapshot of a zone of %d MB: %.1f MB, %d entries, written in %d ms, '
          'in %d slices of %d us at most, read in %d ms'
          % (snap['zone_bytes'] >> 20, snap['bytes'] / 1e6, snap['lines'],
             snap['write_ms'], snap['slices'], snap['slice_max_us'],
             snap['read_ms']))
    print('shmem_enabled: %s, %d MB in large pages'
          % (results['shmem_enabled'], results['large_pages_mb']))
    print('text kernel: %s; instructions by %s'
          % (results['kernel'], results['instructions_by']))

    for name, title, what in (('micro', 'Functions of the core', 'ns'),
                              ('micro-instructions', 'Functions of the core',
                               'instructions')):
        shown = [n for n in cases if n.startswith(SHOWN)]
        bars(os.path.join(build, name + '.svg'), title,
             what + ' a block or a peer', shown,
             [('', [cases[n].get(what, 0) / cases[n]['units']
                    for n in shown])])

    save(out, results)

    for name in bad:
        print('%s costs more than %d times what is usual' % (name, WORST))

    sys.exit(bool(bad))


main()
