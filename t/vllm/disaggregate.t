#!/usr/bin/perl

# Prefill and decode by two vLLMs: kvroute_prefill with the NixlConnector, and with a
# folder that both share (ExampleConnector).  The decode server uses the blocks of the
# prefill server, and answers as a single server does; a descriptor is sent once; the
# failures of either server.

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

# P computes, D and E answer; the recorders RP, RD and RE stand before them and keep
# the requests.  S writes to the folder, L reads.

my @names = qw(P D E RP RD RE S L);
my %port;

@port{@names} = $t->ports(scalar @names);
$t->{vars}{$_} = $port{$_} for @names;

sub serve {
    my ($connector, $name, %more) = @_;

    # the address for the transfer of its memory

    local $ENV{VLLM_NIXL_SIDE_CHANNEL_HOST} = '127.0.0.1';
    local $ENV{VLLM_NIXL_SIDE_CHANNEL_PORT} = ($t->ports(1))[0];

    $t->server($port{$name}, [ '--kv-transfer-config',
        JSON::PP->new->canonical->encode({ kv_connector => $connector,
            kv_role => $name =~ /[PS]/ ? 'kv_producer' : 'kv_consumer', %more }) ]);
}

# D refuses a request whose blocks it cannot get, which is the default; E
# computes them

sub nixl {
    return serve('NixlConnector', $_[0], kv_buffer_device => 'cpu',
                 kv_load_failure_policy => $_[0] eq 'E' ? 'recompute' : 'fail');
}

sub store {
    return serve('ExampleConnector', $_[0], kv_connector_extra_config => {
                     shared_storage_path => "$t->{dir}/kv" });
}

nixl($_) for qw(P D E);
$t->ready($port{$_}) for qw(P D E);

my $peers = 'kvroute kv_cache zone=z; kvroute_eject off; '
            . 'kvroute_probe interval=500ms timeout=5s;';
my %upstreams = (prefill => 'RP', decode => 'RD', spare => 'RE', writer => 'S',
                 reader => 'L', both => 'RD RE', straight => 'D E');
my %kept = (RP => 'P', RD => 'D', RE => 'E');

# the second server is used when the first one fails

$t->{vars}{UPSTREAMS} = join '', map {
    my ($first, @next) = map { "server 127.0.0.1:$port{$_} max_fails=0" }
                         split ' ', $upstreams{$_};
    "    upstream $_ { $peers $first; @{[ map { \"$_ backup;\" } @next ]} }\n"
} sort keys %upstreams;

$t->{vars}{RECORDERS} = join '', map { <<"EOF" } sort keys %kept;
    server {
        listen 127.0.0.1:$port{$_};
        access_log off;
        location / { proxy_pass http://127.0.0.1:$port{$kept{$_}}; }
        location /v1/ {
            access_log $t->{dir}/$_.sent body;
            proxy_pass http://127.0.0.1:$port{$kept{$_}};
        }
    }
EOF

$t->conf(<<'EOF')->run();
http {
%%TEMP%%
    log_format body escape=none '$request_body';
    log_format legs '$arg_n|$status|$kvroute_disaggregated|$kvroute_leg1_status|'
                    '$kvroute_leg1_peer|$upstream_addr|$kvroute_cached_tokens';

    kvroute_zone zone=z:8m;
    client_max_body_size 64m;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;
    proxy_read_timeout 10m;

%%UPSTREAMS%%
%%RECORDERS%%

    server {
        listen 127.0.0.1:%%PORT%%;
        access_log %%DIR%%/access.log legs;

        kvroute_prefill prefill min=2k!;

        location / { proxy_pass http://decode; }
        location /spare/ { proxy_pass http://spare/; }
        location /both/ {
            proxy_next_upstream error timeout http_500 http_502 non_idempotent;
            proxy_pass http://both/;
        }
        location /straight/ { proxy_pass http://straight/; }
        location /store/ {
            kvroute_prefill writer min=2k! connector=store;
            proxy_pass http://reader/;
        }

        location = /kvroute/json { kvroute_status json; access_log off; }
    }
}
EOF


# where a server has got the tokens of its prompts

sub sources {
    my ($name) = @_;

    return map { $t->metric($port{$name}, 'prompt_tokens_by_source_total',
                            qr/source="$_"/) // 0 }
           qw(external_kv_transfer local_cache_hit local_compute);
}


# Posts; returns the response, its tokens, and its line in the log.

my $asked = 0;

sub ask {
    my ($where, $uri, $body, %arg) = @_;

    my $n = 'n' . ++$asked;
    my $r = $t->post("$where$uri?n=$n", JSON::PP->new->canonical->encode($body),
                     timeout => 300, %arg);

    $r->{said} = usage($r->{body} // '');

    return $r if $arg{port};

    wait_for(sub {
        my ($line) = $t->access_log() =~ /^$n\|(.*)\n/m or return;
        @$r{qw(logged outcome leg1 first second cached)} = split /\|/, $line, -1;
    }) or die "$uri was not logged\n";

    return $r;
}

sub sent {
    my ($name) = @_;

    return map { decode_json($_) } split /\n/, $t->access_log("$name.sent");
}

sub same {
    my ($r, $uri, $body, $name) = @_;

    my $one = ask('', $uri, $body, port => $alone);

    is($r->{status}, 200, "$name: served") or diag($r->{body});
    isnt($one->{said}{text}, '', 'one server answers');
    is($r->{said}{text}, $one->{said}{text}, 'with the same words');
}

# the model's choices are nearly random, so it is asked for few tokens

sub bodies {
    my ($size) = @_;

    my %stream = (stream => $yes, stream_options => { include_usage => $yes });
    my %common = (model => 'm', temperature => 0);

    return map { my $more = $_; (
        [ '/v1/chat/completions', { %common, %$more, max_tokens => 6, messages => [
              { role => 'user', content => words($size, ++$seed) } ] } ],
        [ '/v1/completions', { %common, %$more, max_tokens => 6,
              prompt => words($size, ++$seed) } ],
    ) } {}, \%stream;
}


# Two servers that connect for the first time have five seconds, which may be too few
# on a busy machine: then the second one fails, or computes the prompt.

sub meet {
    my ($where, $name) = @_;

    my @before = sources($name);

    return wait_for(sub {
        ask($where, '/v1/completions', one());
        return (sources($name))[0] > $before[0];
    }, 600);
}

sub one {
    return { model => 'm', temperature => 0, max_tokens => 6,
             prompt => words(6000, ++$seed) };
}

ok(meet('', 'D'), 'a decode server meets the prefill server');
ok(meet('/spare', 'E'), 'and another one does');


# the answer depends on the whole prompt, so wrong blocks give wrong words

my $end = words(500, ++$seed);

isnt(ask('', '/v1/completions', { %{one()}, prompt => words(6000, ++$seed) . $end },
         port => $alone)->{said}{text},
     ask('', '/v1/completions', { %{one()}, prompt => words(6000, ++$seed) . $end },
         port => $alone)->{said}{text}, 'another beginning, another answer');


# Each endpoint, in one piece and as a stream.  All whole blocks come from the other
# server.

for my $connector ([ '', 'D' ], [ '/store', 'L' ]) {
    my ($where, $name) = @$connector;

    if ($where eq '/store') {
        store($_) for qw(S L);
        $t->ready($port{$_}) for qw(S L);
    }

    for my $case (bodies(6000)) {
        my ($uri, $body) = @$case;
        my $what = "$where$uri" . ($body->{stream} ? ', a stream' : '');
        my @before = sources($name);
        my $r = ask($where, $uri, $body);

        same($r, $uri, $body, $what);
        is($r->{outcome}, 'yes', 'by two servers');
        is($r->{leg1}, 200, 'leg 1 has computed it');

        my ($prompt, @is) = $r->{said}{prompt};

        ok(wait_for(sub {
            my @now = sources($name);
            @is = map { $now[$_] - $before[$_] } 0 .. 2;
            return $is[0] + $is[1] + $is[2] >= $prompt;
        }), 'the decode server counts transferred tokens');
        cmp_ok($is[0], '>=', $prompt - 32 - 1, 'nearly all are transferred')
            or diag("@is of $prompt");
        note("$what: $prompt tokens, $is[0] from there, $is[1] cached, $is[2] computed; "
             . 'it says ' . ($r->{said}{cached} // 'nothing') . ' cached');
    }
}


# a conversation continues: the blocks that the decode server has are not sent
# again

my $chat = { model => 'm', temperature => 0, max_tokens => 6,
             messages => [ { role => 'user', content => words(6000, ++$seed) } ] };
my $r = ask('', '/v1/chat/completions', $chat);

push @{$chat->{messages}}, { role => 'assistant', content => $r->{said}{text} },
                           { role => 'user', content => words(4000, ++$seed) };

my @before = sources('D');

$r = ask('', '/v1/chat/completions', $chat);
same($r, '/v1/chat/completions', $chat, 'a second turn');
is($r->{outcome}, 'yes', 'by two servers');

ok(wait_for(sub {
    my @now = sources('D');
    return $now[0] - $before[0] > 500 && $now[1] - $before[1] > 1000;
}), 'one has the prefix, and receives the rest')
    or diag(join ' ', map { $_ // '-' } @before, sources('D'));

# when it has all blocks, it gets the request without leg 1

$r = ask('', '/v1/chat/completions', $chat);
is($r->{outcome}, 'cached', 'again: one server');
cmp_ok($r->{said}{cached}, '>', 1500, 'it has the prompt cached');


# the cached tokens of the prefill server count, those of the decode server do not

sub cache_of {
    my ($upstream, $name) = @_;

    return $t->peer($upstream, $port{$name})->{cache};
}

cmp_ok(cache_of('prefill', 'RP')->{responses}, '>=', 8,
       'the prefill server has responses');
is(cache_of('decode', 'RD')->{responses}, 1, 'the decode server only when it was alone');
is(cache_of('reader', 'L')->{responses} // 0, 0, 'the reader never');
is(cache_of(@$_)->{missed} // 0, 0, "nothing is missed: $_->[0]")
    for [ 'prefill', 'RP' ], [ 'decode', 'RD' ], [ 'writer', 'S' ], [ 'reader', 'L' ];


# a client's descriptor does not reach the server, wherever vLLM reads it: with one in
# vllm_xargs it answers 500

my %descriptor = (do_remote_prefill => $yes, remote_host => '10.0.0.1', remote_port => 1,
                  remote_engine_id => 'e');

for my $evil ({ kv_transfer_params => \%descriptor },
              { vllm_xargs => { kv_transfer_params => 'e', top_k => 1 } })
{
    for my $size (200, 4000) {
        my $body = { model => 'm', temperature => 0, max_tokens => 6,
                     prompt => words($size, ++$seed) };

        $r = ask('', '/v1/completions', { %$body, %$evil });
        same($r, '/v1/completions', $body,
             "a client's descriptor, in @{[keys %$evil]}, $size bytes");
    }
}

is(ask('', '/v1/completions', { %{one()}, vllm_xargs => { kv_transfer_params => 'e' } },
       port => $port{D})->{status}, 500, 'without nginx');


# the client leaves, in either leg

sub running {
    my ($name, $is) = @_;

    return wait_for(sub {
        return ($t->metric($port{$name}, 'num_requests_running') // 0) == $is;
    });
}

my $sent = sent('RD');
my $s = $t->start('POST /v1/completions', JSON::PP->new->encode({ model => 'm',
                  max_tokens => 6, prompt => words(50_000, ++$seed) }));

ok(running('P', 1), 'the first leg is under way');
close $s;
ok(running('P', 0), 'the client leaves: leg 1 ends');

$s = $t->start('POST /v1/completions', JSON::PP->new->encode({ model => 'm',
               max_tokens => 8000, stream => $yes, prompt => words(6000, ++$seed) }));
$t->read_until($s, qr/"text":"[^"]/, 300);
close $s;
ok(running('D', 0), 'the client leaves: leg 2 ends');
is(scalar(sent('RD')), $sent + 1, 'leg 2 was sent once');
ok($t->idle(), 'the counters are back at zero');


# The prefill server dies after computing blocks, before the others have fetched
# them: these are paused until then.

sub halt {
    my ($signal, $name) = @_;

    kill $signal, map { -$_ } Vllm::children($t->{server}{$port{$name}});
}

sub going {
    my ($where, $body) = @_;

    return $t->start("POST $where/v1/completions", JSON::PP->new->encode($body));
}

$t->expect_log(qr/connect\(\) failed|upstream prematurely closed|recv\(\) failed/);

halt('STOP', $_) for qw(D E);

my ($first, $second) = (one(), one());
my $computed = sent('RP');
my @s = (going('/both', $first), going('/spare', $second));

ok(wait_for(sub { sent('RP') == $computed + 2 }, 300),
   'the prefill server has computed two prompts');

$t->end($port{P}, 'KILL');
halt('CONT', $_) for qw(D E);

my @r = map { my $r = $t->finish($_, 300); $r->{said} = usage($r->{body} // ''); $r } @s;

same($r[0], '/v1/completions', $first,
     'one server refuses it, the next one gets the request');
same($r[1], '/v1/completions', $second, 'one server computes it');
ok(!exists((grep { $_->{prompt} eq $first->{prompt} } sent('RE'))[-1]{kv_transfer_params}),
   'it does not receive a descriptor that another server got');

for my $where ('', '/spare') {
    my $body = one();
    $r = ask($where, '/v1/completions', $body);
    same($r, '/v1/completions', $body, 'without a prefill server');
    is($r->{outcome}, 'failed', 'the outcome: failed');
}

nixl('P');
$t->ready($port{P});
ok(meet('', 'D'), 'a new prefill server runs');

my $body = one();
$r = ask('', '/v1/completions', $body);
same($r, '/v1/completions', $body, 'the prefill server is back');
is($r->{outcome}, 'yes', 'the outcome: yes');


# A decode server dies.  A descriptor that was not sent to it may go to another
# one.

$t->end($port{D}, 'KILL');

@before = sources('E');
$r = ask('/straight', '/v1/completions', $body = one());
same($r, '/v1/completions', $body, 'connection refused: the next one');
is($r->{outcome}, 'yes', 'the next one gets the descriptor');
ok(wait_for(sub { (sources('E'))[0] > $before[0] + 500 }),
   'the next one uses the blocks');

$r = ask('/both', '/v1/completions', $body = one());
same($r, '/v1/completions', $body, 'the descriptor may have been sent: the next one');
is($r->{outcome}, 'retried', 'the next one computes the prompt');
is(ask('', '/v1/completions', one())->{status}, 502, 'no other server: 502');


# no descriptor was sent twice

my @used = map { $_->{kv_transfer_params} ? $_->{kv_transfer_params}{remote_request_id}
                                          : () } map { sent($_) } qw(RD RE);
my %times;

$times{$_}++ for @used;
cmp_ok(scalar @used, '>', 10, 'descriptors were sent');
is(scalar(grep { $_ > 1 } values %times), 0, 'each was sent once');

ok($t->idle(), 'the counters are back at zero');

$t->done();
