#!/usr/bin/perl

# Prefill and decode by two vLLMs that connect to each other: kvroute_prefill with the
# MooncakeConnector, over TCP (mooncake_host.py).  The decode server uses the blocks of the
# prefill server, and answers as a single server does; a client's descriptor does not reach
# the server; the prefill server dies.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../lib";
use JSON::PP;
use Vllm;

my $t = Vllm->new();
my ($alone) = $t->fleet();
my $yes = $JSON::PP::true;
my $seed = 0;
my ($p, $d, $bootstrap) = $t->ports(3);

@{$t->{vars}}{qw(P D BOOTSTRAP)} = ($p, $d, $bootstrap);

sub serve {
    my ($port, $role) = @_;

    local $ENV{PYTHONPATH} = $FindBin::Bin;
    local $ENV{VLLM_HOST_IP} = '127.0.0.1';
    local $ENV{VLLM_MOONCAKE_BOOTSTRAP_PORT} = $bootstrap;

    $t->server($port, [ '--kv-transfer-config', encode_json({
        kv_connector => 'HostMooncake', kv_connector_module_path => 'mooncake_host',
        kv_role => $role, engine_id => "127.0.0.1:$port",
        kv_load_failure_policy => 'fail',
        kv_connector_extra_config => { mooncake_protocol => 'tcp' } }) ]);
}

serve($p, 'kv_producer');
serve($d, 'kv_consumer');
$t->ready($_) for $p, $d;

$t->conf(<<'EOF')->run();
http {
%%TEMP%%
    log_format legs '$arg_n|$kvroute_disaggregated|$kvroute_leg1_status';
    kvroute_zone zone=z:8m;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;
    proxy_read_timeout 10m;

    upstream prefill { kvroute kv_cache zone=z; server 127.0.0.1:%%P%%; }
    upstream decode { kvroute kv_cache zone=z; server 127.0.0.1:%%D%%; }

    server {
        listen 127.0.0.1:%%PORT%%;
        access_log %%DIR%%/access.log legs;

        location / {
            kvroute_prefill prefill connector=mooncake:%%BOOTSTRAP%% min=2k!;
            proxy_pass http://decode;
        }

        location = /kvroute/json { kvroute_status json; access_log off; }
    }
}
EOF


# tokens of prompts that the decode server got, and that it computed

sub sources {
    return map { $t->metric($d, 'prompt_tokens_by_source_total',
                            qr/source="$_"/) // 0 }
           qw(external_kv_transfer local_compute);
}

my $asked = 0;

sub ask {
    my ($uri, $body) = @_;

    my $n = 'n' . ++$asked;
    my $r = $t->post("$uri?n=$n", JSON::PP->new->canonical->encode($body), timeout => 300);

    $r->{said} = usage($r->{body} // '');
    wait_for(sub {
        @$r{qw(outcome leg1)} = $t->access_log() =~ /^$n\|(.*)\|(.*)\n/m;
    }) or die "$uri was not logged\n";

    return $r;
}

sub same {
    my ($r, $uri, $body, $name) = @_;

    my $one = usage($t->post($uri, JSON::PP->new->canonical->encode($body),
                             port => $alone, timeout => 300)->{body});

    is($r->{status}, 200, "$name: served") or diag($r->{body});
    isnt($one->{text}, '', "$name: one server answers");
    is($r->{said}{text}, $one->{text}, "$name: with the same words");
}

sub body_of {
    my ($uri, $size, %more) = @_;

    my $text = words($size, ++$seed);

    return { model => 'm', temperature => 0, max_tokens => 6, %more,
             $uri =~ /chat/ ? (messages => [ { role => 'user', content => $text } ])
                            : (prompt => $text) };
}

my @uri = qw(/v1/completions /v1/chat/completions);

ok(wait_for(sub {
    my @before = sources();
    ask($uri[0], body_of($uri[0], 6000));
    return (sources())[0] > $before[0];
}, 600), 'the two servers are connected');

for my $uri (@uri) {
    for my $stream (0, 1) {
        my $body = body_of($uri, 6000, $stream ? (stream => $yes,
                           stream_options => { include_usage => $yes }) : ());
        my $name = $uri . ($stream ? ', a stream' : '');
        my @before = sources();
        my $r = ask($uri, $body);
        my @is;

        same($r, $uri, $body, $name);
        is($r->{outcome}, 'yes', "$name: by two servers");
        is($r->{leg1}, 200, "$name: leg 1 has computed it");
        ok(wait_for(sub {
            my @now = sources();
            @is = map { $now[$_] - $before[$_] } 0, 1;
            return $is[0] + $is[1] >= $r->{said}{prompt};
        }), "$name: the decode server counts transferred tokens");
        cmp_ok($is[0], '>=', $r->{said}{prompt} - 33, "$name: nearly all are transferred")
            or diag("@is of $r->{said}{prompt}");
    }
}


# a client's descriptor

my $body = body_of($uri[0], 4000);
my $r = ask($uri[0], { %$body, kv_transfer_params => {
    do_remote_prefill => $yes, transfer_id => 'e', remote_engine_id => 'e',
    remote_bootstrap_addr => 'http://10.0.0.1:1' } });

same($r, $uri[0], $body, "a client's descriptor");
is($r->{outcome}, 'yes', "a client's descriptor: replaced");


# the prefill server dies

$t->expect_log(qr/connect\(\) failed|upstream prematurely closed|recv\(\) failed/);
$t->end($p, 'KILL');

$r = ask($uri[0], $body = body_of($uri[0], 6000));
same($r, $uri[0], $body, 'without a prefill server');
is($r->{outcome}, 'failed', 'without a prefill server: the outcome');
ok($t->idle(), 'the counters are back at zero');

$t->done();
