#!/usr/bin/perl

# "reset" of the API clears every counter: all numbers in the status, as JSON
# and Prometheus text, are compared.  Numbers that are not counters are listed
# here, so a new number must be listed or cleared.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new();

$t->engines(4, '--hardware', 'none', '--model', 'm',
            '--enable-prompt-tokens-details', '--kv-cache-size', 4096);
$t->backend("B$_") for 0 .. 1;

# probed once at the start, and not again: counters stand still

my $ask = 'kvroute_probe interval=1h timeout=30s;'
        . 'kvroute_health interval=1h timeout=30s fails=1;';

$t->upstream('small', 'kvroute kv_cache zone=little;',
             'kvroute_queue max=1 timeout=1h;', 'B0 max_conns=1 max_fails=0');
$t->upstream('failing', 'B0 max_fails=1 fail_timeout=1h', 'B1 max_fails=0');

$t->upstream('engines', 'E0 E1', $ask);
$t->upstream('unasked', 'E3', 'server 127.0.0.1:1 down;');
$t->upstream('sick', 'E2', 'server 127.0.0.1:1;', $ask);

$t->conf(<<"EOC");
    kvroute_zone zone=z:2m;
    kvroute_zone zone=little:1m;

    client_body_buffer_size 1m;
    location /v1/ { proxy_pass http://engines; }
    location /unasked/ { proxy_pass http://unasked/; }
    location /sick/ { proxy_pass http://sick/; }
    location /small/ { proxy_pass http://small; }
    location /failing/ { proxy_pass http://failing; }
    location /api/ { kvroute_api write=on; }
EOC

$t->control($t->{vars}{E2}, { health_status => 500 });
$t->run();

# not counters: settings, present values, recent means, learned values, and an
# engine's own counters

my $gauge = qr{^(?:
    pid|version|nginx_version
  | receipts/.*
  | zones/[^/]+/(?:size|block|lines|fill|peers|max_peers|processes
                   |max_processes|generation)
  | upstreams/[^/]+/(?:max_pending|queue/(?:size|max_size|bytes|rate)
                       |queue/classes/\d+/(?:class|size))
  | (?:upstreams/[^/]+/)?health/why/.*
  | upstreams/[^/]+/(?:history/.*|saved/\w+)
  | upstreams/[^/]+/peers/\d+/(?:minute/\w+|
        id|weight|active|max_conns|conns|pending|active_all|pending_all
        |unanswered_all|capacity_bytes|load/\w+
        |cache/(?:bytes_per_token|capacity_factor)
        |engine/(?:age_ms|running|foreign|waiting|kv_usage|capacity_tokens
                   |cache_queries|cache_hits|preemptions|cap|adapters
                   |max_adapters))
)$}x;

# counters that this test does not move

my $still = qr{^(?:timed_held|timed_lost|flushes_(?:probe|event)|timeout
                  |shed|deadline|1xx|3xx|ejections|retries|retries_denied)$}x;

sub numbers {
    my ($path, $value, $found) = @_;

    if (ref $value eq 'HASH') {
        numbers("$path/$_", $value->{$_}, $found) for keys %$value;

    } elsif (ref $value eq 'ARRAY') {
        numbers("$path/$_", $value->[$_], $found) for 0 .. $#$value;

    } elsif (!ref $value && $value =~ /^-?[\d.]+(?:e[+-]?\d+)?$/) {
        $found->{$path =~ s{^/}{}r} = $value;
    }

    return $found;
}

sub counters {
    my $all = numbers('', decode_json($t->get('/kvroute/json')->{body}), {});

    delete @$all{grep { /$gauge/ } keys %$all};

    return $all;
}

# for Prometheus: series that count

sub series {
    my (%type, %counted);

    for (split /\n/, $t->get('/kvroute/metrics')->{body}) {
        $type{$1} = $2 if /^# TYPE (\S+) (\S+)$/;

        next unless /^((\w+?)(_bucket|_sum|_count)?(?:\{.*\})?) (\S+)$/;

        my ($series, $name, $end, $value) = ($1, $2, $3 // '', $4);
        my $type = $type{$name} || $type{"$name$end"};

        $counted{$series} = $value if $type ne 'gauge'
            && $name ne 'kvroute_peer_engine_preemptions_total';
    }

    return \%counted;
}

# --- move all counters

sub engines {
    my ($body, %arg) = @_;
    my $r = $t->post('/v1/chat/completions', $body, %arg);
    is($r->{status}, 200, 'served');
    return $r;
}

ok(wait_for(sub {
    my $u = $t->status()->{upstreams};
    !grep { !$_->{health_checks}{checks} || !$_->{engine}{probes} }
          map { @{$u->{$_}{peers}} } qw(engines sick);
}), 'all were probed');

my @prompts = map { chat(text(20_000, $_), stream => $_ % 2 ? \1 : \0) } 1 .. 6;

engines($_) for @prompts, @prompts;
ok($t->idle(), 'idle');

$t->get('/v1/models');
$t->post('/v1/nothing', '{}');
$t->post('/sick/v1/chat/completions', $prompts[0]);

# overwrite the small zone's index; requests wait in its queue, are rejected,
# leave

# its fill is an estimate: go far beyond the limit

for (1 .. 24) {
    $t->post('/small/', chat(text(500_000, $_)));
}

is($t->status()->{zones}{z}{full_since}, undef, 'an index with room');
like($t->status()->{zones}{little}{full_since}, qr/^20\d\d-.*Z$/,
     'the time since an index is full');

for my $end (qw(wait leave)) {
    my $first = $t->start('POST /small/', chat("first $end"),
                          headers => { 'X-B0' => "wait $end" });
    ok(wait_for(sub { $t->peer('small', $t->{vars}{B0})->{active} == 1 }),
       'one is at the server');
    my $second = $t->start('POST /small/', chat("second $end"));
    ok(wait_for(sub { $t->status()->{upstreams}{small}{queue}{size} == 1 }),
       'one waits');
    is($t->post('/small/', chat('third'))->{status}, 429, 'one is rejected');

    if ($end eq 'leave') {
        close $second;
        ok(wait_for(sub { $t->status()->{upstreams}{small}{queue}{size} == 0 }),
           'one leaves');
    }

    $t->step($end);
    is($t->finish($first)->{status}, 200, 'served');
    is($t->finish($second)->{status}, 200, 'served') if $end eq 'wait';
}

$t->post('/failing/', chat("prompt $_"), headers => {
    'X-B0' => 'close', 'X-B1' => 'status 500' }) for 1 .. 4;

ok($t->idle(), 'idle');

# --- reset of one server

sub of_peer { map { $_ => $_[1]{$_} } grep { /^$_[0]/ } keys %{$_[1]} }

{
    my ($i) = grep { $t->status()->{upstreams}{engines}{peers}[$_]{requests} }
              0 .. 1;
    my $mine = "upstreams/engines/peers/$i/";
    my $other = 'upstreams/engines/peers/' . (1 - $i) . '/';
    my $name = $t->status()->{upstreams}{engines}{peers}[$i]{name};

    my $before = counters();
    is($t->request("POST /api/reset?peer=$name", '')->{status}, 200, 'reset');
    my $after = counters();

    my %mine = of_peer($mine, $after);
    is(join("\n", grep { $mine{$_} } sort keys %mine), '',
       'one server: all counters are 0');
    is_deeply({ of_peer($other, $after) }, { of_peer($other, $before) },
              'the other one keeps its counters');

    for my $part (qw(ttft policies), 'decision_time') {
        my $re = "upstreams/engines/$part/";
        is_deeply({ of_peer($re, $after) }, { of_peer($re, $before) },
                  "the upstream keeps: $part");
    }

    is_deeply({ of_peer('zones/', $after) }, { of_peer('zones/', $before) },
              'the zone keeps its counters');

    engines($_) for @prompts, @prompts;
    $t->post('/v1/nothing', '{}');

    # nginx counts milliseconds, and these engines often take none

    ok(wait_for(sub {
        engines($prompts[0]);
        grep { $_->{ttft_stream} }
             @{$t->status()->{upstreams}{engines}{peers}};
    }), 'a stream with a time');

    # an emptied engine without probes, which would show that it is the same
    # process

    my $unasked = sub { $t->post('/unasked/v1/chat/completions', $_) for @_ };

    $unasked->(@prompts, @prompts);
    $t->post('/reset_prefix_cache', '', port => $t->{vars}{E3});
    $unasked->(@prompts);
    ok($t->idle(), 'idle');
}

# --- reset of all

{
    my ($json, $prom) = (counters(), series());
    my %moved;

    for (grep { !m{/(?:decisions|policies|buckets)/} } keys %$json) {
        my ($name) = m{([^/]+)$};
        $moved{$name} ||= $json->{$_};
    }

    is(join(' ', grep { !$moved{$_} && !/$still/ } sort keys %moved), '',
       'each counter is above zero somewhere');
    ok((grep { $_ } values %$prom) > 50, 'and many for Prometheus');

    is($t->request('POST /api/reset', '')->{status}, 200, 'reset of all');

    ($json, $prom) = (counters(), series());

    is(join("\n", map { "$_ $json->{$_}" } grep { $json->{$_} }
                  sort keys %$json),
       '', 'all counters are 0');
    is(join("\n", map { "$_ $prom->{$_}" } grep { $prom->{$_} != 0 }
                  sort keys %$prom), '', 'all of Prometheus are 0');

    engines($prompts[1]);
    ok($t->idle(), 'idle');
    is($t->status()->{upstreams}{engines}{ttft}{count}, 1, 'and counting continues');
}

$t->done();
