#!/usr/bin/perl

# kvroute_upstream attaches, by name, to upstreams that are defined elsewhere.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 2;

my $conf = <<'EOC';
    add_header X-Receipt "$kvroute_policy $kvroute_reason";
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    %%ATTACH%%

    upstream vs_ml_llm_vllm {
        zone vs_ml_llm_vllm 256k;
        random two least_conn;
        server 127.0.0.1:%%B0%% max_fails=1 fail_timeout=10s;
        server 127.0.0.1:%%B1%% max_fails=1 fail_timeout=10s;
        keepalive 8;
    }
    upstream vs_ml_llm_other {
        zone vs_ml_llm_other 256k;
        server 127.0.0.1:%%B0%%;
        server 127.0.0.1:%%B1%%;
        server 127.0.0.1:%%B2%% backup;
        kvroute_health interval=1h;
    }
    upstream own {
        zone own 256k;
        kvroute random zone=z;
        server 127.0.0.1:%%B0%%;
        server 127.0.0.1:%%B1%%;
    }
    upstream plain {
        zone plain 256k;
        least_conn;
        server 127.0.0.1:%%B0%%;
        server 127.0.0.1:%%B1%%;
    }

    location /vllm/ { proxy_pass http://vs_ml_llm_vllm; }
    location /other/ { proxy_pass http://vs_ml_llm_other; }
    location /own/ { proxy_pass http://own; }
    location /plain/ { proxy_pass http://plain; }
    location /direct/ { proxy_pass http://127.0.0.1:%%B0%%; }
EOC

sub attach {
    $t->{vars}{ATTACH} = $_[0];
    return $t->conf($conf)->check();
}

$t->expect_log(qr/\[emerg\]/);

my $old = $t->version() lt '001029007';

{
    my ($ok, $out) = attach('kvroute_upstream plain zone=z;');

    if ($old) {
        ok(!$ok, 'refused');
        like($out, qr/"kvroute_upstream" needs nginx 1\.29\.7 or newer, this is/,
             'and why');

    } else {
        ok($ok, 'taken');
    }
}

SKIP: {
    skip 'upstreams can be had by name since nginx 1.29.7', 1 if $old;

    my $at = qr{in \S*nginx\.conf:\d+};

    for my $case ([ 'plain', qr/invalid number of arguments/ ],
                  [ 'plain kv_cache', qr/must have "zone" parameter/ ],
                  [ 'plain best zone=z', qr/unknown policy "best"/ ],
                  [ 'plain off zone=z', qr/policy "off" is for locations/ ],
                  [ 'plain zone=no', qr/"no"/ ],
                  [ 'plain zone=z capacity=no', qr/"capacity=no"/ ],
                  [ '~( zone=z', qr/pcre|missing|unmatched/i ])
    {
        my ($ok, $out) = attach("kvroute_upstream $case->[0];");
        ok(!$ok, $case->[0]);
        like($out, $case->[1], 'and why');
    }

    my ($ok, $out) = attach('kvroute_upstream nobody zone=z;');
    ok($ok, 'matches nothing');
    like($out, qr/\[warn\].*matches no upstream by "nobody" $at/, 'a warning');

    attach('kvroute_upstream vs_ml_llm_other round_robin zone=z;'
           . ' kvroute_upstream ~^VS_ML_ sticky zone=z;'
           . ' kvroute_upstream ~*^VS_ML_ kv_cache zone=z max_pending=1m;'
           . ' kvroute_upstream own least_request zone=z;');
    $t->run();

    my $u = $t->status()->{upstreams};

    is(join(' ', sort keys %$u), 'own vs_ml_llm_other vs_ml_llm_vllm',
       'those that match');
    is($u->{vs_ml_llm_vllm}{policy}, 'kv_cache', 'by expression');
    is($u->{vs_ml_llm_vllm}{max_pending}, 1024 * 1024, 'parameters');
    is($u->{vs_ml_llm_other}{policy}, 'round_robin', 'the first one counts');
    is($u->{own}{policy}, 'random', 'its own directive wins');
    ok($u->{vs_ml_llm_other}{peers}[2]{backup}, 'backup servers');
    ok($u->{vs_ml_llm_other}{peers}[0]{health_checks},
       'the block\'s directives');

    my $body = chat(text(20_000, 1));
    my %got;

    $got{$t->post('/vllm/', $body)->{headers}{'x-backend'}}++ for 1 .. 8;
    is(scalar keys %got, 1, 'affinity');
    is($t->post('/vllm/', $body)->{headers}{'x-receipt'}, 'kv_cache affinity',
       'by its receipt');

    %got = ();
    $got{$t->post('/other/', $body)->{headers}{'x-backend'}}++ for 1 .. 8;
    is(join(' ', map { $got{$_} } sort keys %got), '4 4', 'round robin');

    is($t->post('/plain/', $body)->{headers}{'x-receipt'}, '',
       'other upstreams are unchanged');
    is($t->post('/direct/', $body)->{status}, 200, 'no upstream at all');

    # connections are kept as before

    if ($t->{workers} == 1) {
        my ($n) = $t->post('/vllm/', $body)->{body} =~ / (\d+)$/;
        ok($n > 1, 'connections are kept');
    }

    $t->reload();
    is($t->post('/vllm/', $body)->{headers}{'x-receipt'}, 'kv_cache affinity',
       'kept over a reload');
}

$t->done();
