#!/usr/bin/perl

# Prefill and decode by two servers: the requests that each receives, byte for
# byte, and the reaction to failures.

use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Recorder 'recorder';

my $t = Kvroute->new();

my $params = '{"do_remote_prefill":true, "remote_block_ids":[[1,2]],'
             . '"remote_host":"h","x":"\\"}{","remote_port":5600}';

my %answer = (
    P => '{"id":"1","choices":[{"message":{"content":"The"}}],'
         . '"usage":{"prompt_tokens":900,"completion_tokens":1,'
         . '"prompt_tokens_details":{"cached_tokens":64}},'
         . "\"kv_transfer_params\":$params}",
    D => '{"id":"2","choices":[{"message":{"content":"text"}}],'
         . '"usage":{"prompt_tokens":900,"completion_tokens":2,'
         . '"prompt_tokens_details":{"cached_tokens":899}}}'
);

recorder($t, $_, $answer{substr $_, 0, 1}) for qw(P0 P1 D0 D1);
$t->engines(4, '--model', 'm', '--hardware', 'none');

$t->conf(<<'EOF');
    log_format kv '$http_x_n $status $kvroute_disaggregated $kvroute_leg1_status '
                  '[$kvroute_leg1_peer] $kvroute_leg1_time $kvroute_peer '
                  '$kvroute_reason';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;

    upstream prefill {
        kvroute kv_cache zone=z;
        kvroute_eject off;
        server 127.0.0.1:%%P0%% max_fails=0;
        server 127.0.0.1:%%P1%% max_fails=0;
    }
    upstream decode {
        kvroute kv_cache zone=z;
        kvroute_eject off;
        server 127.0.0.1:%%D0%% max_fails=0;
        server 127.0.0.1:%%D1%% max_fails=0;
        keepalive 4;
    }
    upstream eprefill {
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E0%%;
        server 127.0.0.1:%%E1%%;
    }
    upstream edecode {
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E2%%;
        server 127.0.0.1:%%E3%%;
        keepalive 4;
    }

    upstream oneprefill { kvroute kv_cache zone=z; server 127.0.0.1:%%E0%%; }
    upstream onedecode { kvroute kv_cache zone=z; server 127.0.0.1:%%E2%%; }

    kvroute_prefill prefill min=2k!;
    client_body_buffer_size 64k;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    location / { proxy_pass http://decode; }
    location /p/ {
        kvroute_prefill off;
        add_header X-Matched $kvroute_matched_bytes;
        proxy_pass http://prefill/;
    }
    location /off/ {
        kvroute_prefill off;
        add_header X-Matched $kvroute_matched_bytes;
        proxy_pass http://decode/;
    }
    location /file/ {
        client_body_in_file_only clean;
        proxy_pass http://decode/;
    }
    location /strict/ {
        kvroute_prefill prefill min=2k! fallback=none;
        proxy_pass http://decode/;
    }
    location /cost/ {
        kvroute_prefill prefill min=2k transfer=0.01;
        proxy_pass http://decode/;
    }
    location /dear/ {
        kvroute_prefill prefill min=2k transfer=100;
        proxy_pass http://decode/;
    }
    location /link/ {
        kvroute_prefill prefill min=2k transfer=1000g/1;
        proxy_pass http://decode/;
    }
    location /slow/ {
        kvroute_prefill prefill min=2k transfer=1/1g;
        proxy_pass http://decode/;
    }
    location /store/ {
        kvroute_prefill prefill min=2k! connector=store;
        proxy_pass http://decode/;
    }
    location /one/ {
        kvroute_prefill oneprefill min=2k!;
        proxy_pass http://onedecode/;
    }
    location /header/ {
        kvroute_prefill prefill min=2k! connector=header;
        proxy_set_header X-Prefiller-Host-Port $kvroute_leg1_peer;
        proxy_pass http://decode/;
    }
    location /header/cost/ {
        kvroute_prefill prefill min=2k connector=header;
        proxy_set_header X-Prefiller-Host-Port $kvroute_leg1_peer;
        proxy_pass http://decode/;
    }
    location /again/ {
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://decode/;
    }
    location /page/ {
        error_page 502 504 = @other;
        proxy_pass http://decode/;
    }
    location @other {
        kvroute_prefill off;
        proxy_pass http://127.0.0.1:%%P1%%;
    }
    location /engine/ {
        kvroute_prefill eprefill min=2k!;
        proxy_pass http://edecode/;
    }
    location /small/ { client_max_body_size 0; proxy_pass http://decode/; }
EOF

$t->run();

my $path = '/v1/chat/completions';
my $seed = 1;

# returns the requests to servers of a kind since the last call

sub sent {
    return grep { !$_->{gone} }
           map { decode_json($_) } $t->new_lines("$_[0].sent");
}

# sends a request; returns it, the requests to both kinds, and its log line

my $asked = 0;

sub ask {
    my ($where, $body, %arg) = @_;

    sent($_) for qw(P D);

    my $r = $t->post("$where$path", $body, %arg,
                     headers => { %{$arg{headers} || {}}, 'X-N' => ++$asked });
    my $log = $t->logged($asked);

    return ($r, [ sent('P') ], [ sent('D') ], $log);
}

sub long { return text(4000, $seed++) }

my $members = ',"kv_transfer_params":{"do_remote_decode":true,'
              . '"do_remote_prefill":false,"remote_engine_id":null,'
              . '"remote_block_ids":null,"remote_host":null,'
              . '"remote_port":null}}';


# the legs, byte for byte; members at any place, in memory, in a file, chunked

my $cut = ' ' x length('"stream":true,');

for my $where ('', '/file') {
    for my $case (
        [ '{"stream":true,', "{$cut", '}', '' ],
        [ '{', '{', ',"max_tokens":7 , "stream":false}',
          ' ' x length(',"max_tokens":7 , "stream":false'), '' ],
        [ '{"a":{"stream":1},"max_\\u0074okens":3,"min_tokens":2,',
          '{"a":{"stream":1}' . ' ' x length(',"max_\\u0074okens":3'
          . ',"min_tokens":2') . ',',
          ',"stream_options":{"include_usage":true},"n":1 } ',
          ' ' x length(',"stream_options":{"include_usage":true}')
          . ',"n":1 ' ])
    {
        my ($before, $first, $after, $end) = @$case;
        my $prompt = '"messages":[{"role":"user","content":"' . long() . '"}]';
        my $body = "$before$prompt$after";

        (my $whole = $body) =~ s/\}\s*$//;
        (my $blanked = "$first$prompt$end") =~ s/\}\s*$//;
        $blanked =~ s/ {5,}//g unless $where;

        my ($r, $p, $d, $log) = ask($where, $body,
                                    $where ? (chunked => 900) : ());
        my $name = "$before...$after" . ($where ? ' in a file' : '');

        is($r->{status}, 200, "$name: served");
        is($r->{body}, $answer{D}, 'the answer of leg 2');
        is(scalar(@$p), 1, 'one leg 1');
        is($p->[0]{body}, "$blanked,\"stream\":false,\"max_tokens\":1$members",
           'its body');
        is(scalar(@$d), 1, 'one leg 2');
        is($d->[0]{body}, "$whole,\"kv_transfer_params\":$params}", 'its body');
        like($d->[0]{head}, qr/^POST \Q$path\E HTTP/, 'its path');
        like($p->[0]{head}, qr/^POST \Q$path\E HTTP/, 'the same path for leg 1');
        like($log, qr/^200 yes 200 \[127\.0\.0\.1:\d+\] 0\.\d+ 127/, 'logged');
    }
}

my ($r, $p, $d, $log) = ask('', '{"stream":true,"prompt":"' . long() . '"}',
                            headers => { 'X-P' => 'bytes' });
is($r->{status}, 200, 'an answer in chunks of a byte');
like($d->[0]{body}, qr/\Q,"kv_transfer_params":$params}\E$/, 'is parsed');


# members that a client may not send are blanked in any case

for my $case ([ '', 'yes' ], [ '/off', '' ]) {
    my ($where, $is) = @$case;
    my $evil = '"kv_transfer_params":{"remote_host":"10.0.0.1"}';
    my $body = "{$evil,\"prompt\":\"" . long()
               . '","kv_tr\\u0061nsfer_params":[1],"bootstrap_host":"x"}';

    ($r, $p, $d) = ask($where, $body);

    if ($where eq '/off') {
        is($d->[0]{body}, $body, 'without the directive nothing is blanked');
        next;
    }

    unlike("$_->{body}", qr/10\.0\.0\.1|bootstrap|u0061/, "blanked: $_->{name}")
        for @$p, @$d;
}

my $short = '{"kv_transfer_params":{"remote_host":"10.0.0.1"},"prompt":"hi"}';
($r, $p, $d, $log) = ask('', $short);
is(scalar(@$p), 0, 'a short prompt: no leg 1');
like($log, qr/^200 short /, 'the outcome is logged');
(my $clean = $short) =~ s/(\{)("kv.*?\},)/$1 . ' ' x length $2/e;
is($d->[0]{body}, $clean, 'blanked anyway');

for my $case ([ 'no JSON object', '{"a":1,"kv_transfer_params":{}', 400 ],
              [ 'another encoding', "\xff\xfe{\0}\0", 400 ],
              [ 'another encoding, bare', "{\0\"\0}\0", 400 ],
              [ 'no JSON', 'a=b&kv_transfer_params=1', 200 ],
              [ 'an array', '[{"kv_transfer_params":1}]', 200 ])
{
    my ($name, $body, $status) = @$case;
    ($r, $p, $d) = ask('', $body);
    is($r->{status}, $status, $name);
    is(scalar(@$d), $status == 200 ? 1 : 0, 'and is rejected, or not');
}

($r) = ask('', '{"prompt":"x"}', headers => { 'Content-Encoding' => 'zstd' });
is($r->{status}, 415, 'a body that is compressed');
($r) = ask('/small', '{"prompt":"' . text(17_000_000, 1) . '"}');
is($r->{status}, 413, 'a body above the limit');


# requests that one server must serve alone

for my $more ('"n":2', '"best_of":2', '"use_beam_search":true', '"echo":true',
              '"prompt_logprobs":1', '"cache_prompt":false',
              '"tool_choice":"required"',
              '"tool_choice":{"type":"function","function":{"name":"f"}}')
{
    ($r, $p, $d, $log) = ask('', '{"prompt":"' . long() . "\",$more}");
    is(@$p . @$d, '01', "$more: one server");
    like($log, qr/^200 kind /, 'the outcome is logged');
}

for my $more ('"n":1', '"tool_choice":"auto"', '"tool_choice":null') {
    ($r, $p, $d) = ask('', '{"prompt":"' . long() . "\",$more}");
    is(@$p . @$d, '11', "$more: two servers");
}

($r, $p, $d, $log) = ask('', '{"prompt":"' . long() . '","stream_options":{"x":"'
                            . text(5000, 1) . '"}}');
is(@$p . @$d, '01', 'too many bytes to blank for leg 1: one server');
like($log, qr/^200 unread /, 'the outcome is logged');

$r = $t->post('/v1/embeddings', '{"input":"' . long() . '"}');
is(scalar(my @none = sent('P')), 0, 'an endpoint without decoding');


# a prompt that the decode server has cached

my $held = '{"prompt":"' . long() . '"}';
ask('', $held);
($r, $p, $d, $log) = ask('', $held);
is(@$p . @$d, '01', 'a cached prompt: one server');
like($log, qr/^200 cached /, 'the outcome is logged');


# counters and learning by leg: the prefill server's report about the prompt
# counts; the decode server's cached tokens were transferred, so they do not

sub counted {
    my ($upstream) = @_;
    my %n;

    for my $p (@{$t->status()->{upstreams}{$upstream}{peers}}) {
        $n{requests} += $p->{requests};
        $n{$_} += $p->{cache}{$_} for qw(responses prompt_tokens
                                         delivered_tokens);
    }

    return join ' ', map { "$_ $n{$_}" } sort keys %n;
}

sub grown {
    my ($before, $after) = @_;
    my %n = split / /, $before;
    my %m = split / /, $after;

    return join ' ', map { $m{$_} - $n{$_} } sort keys %m;
}

my @before = map { counted($_) } qw(prefill decode);
$held = '{"prompt":"' . long() . '"}';
($r, $p, $d) = ask('', $held);
is(@$p . @$d, '11', 'one more by two servers');
is(grown($before[0], counted('prefill')), '64 900 1 1', 'leg 1: its usage counts');
is(grown($before[1], counted('decode')), '0 0 1 0', 'leg 2: its usage does not count');

($r, my $at) = ask('/p', $held);
is($at->[0]{name}, $p->[0]{name}, 'the prefill server is known to have it');
cmp_ok($r->{headers}{'x-matched'}, '>', 3000, 'the whole prompt');


# the reply is learned at the server that decoded it, and only there

my $question = { role => 'user', content => long() };
my $reply = { role => 'assistant', content => long() };
my @turn = ($question, $reply, { role => 'user', content => 'go on' });

($r, $p, $d) = ask('', chat([ $question ]), headers => { 'X-D' => 'say '
                   . encode_json({ choices => [ { message => $reply } ] }) });
is(@$p . @$d, '11', 'a question, by two servers');
($r) = ask('/off', chat([ @turn ]));
cmp_ok($r->{headers}{'x-matched'}, '>', 7500,
       'the decode server has question and reply for the next turn');
($r) = ask('/p', chat([ @turn ]));
cmp_ok($r->{headers}{'x-matched'}, '>', 3500, 'the prefill server');
cmp_ok($r->{headers}{'x-matched'}, '<', 4500, 'has the question only');


# by cost: idle decode servers serve alone

my $idle = '{"prompt":"' . text(40000, 904) . '"}';
($r, $p, $d, $log) = ask('/cost', $idle);
is(@$p . @$d, '01', 'idle decode servers: one server');
like($log, qr/^200 cost /, 'the outcome is logged');

my @at;
my @busy = map { $t->start("POST /off$path", '{"prompt":"' . text(40000, $_)
                           . '"}', headers => { 'X-D' => 'hold' }) } 901, 902;
ok(wait_for(sub { push @at, sent('D'); $t->load() == 2 && @at == 2 }),
   'both have a prompt to compute');

($r, $p, $d, $log) = ask('/cost', '{"prompt":"' . text(40000, 999) . '"}');
is(@$p . @$d, '11', 'a cheap transfer: two servers');
($r, $p, $d, $log) = ask('/dear', '{"prompt":"' . text(40000, 998) . '"}');
is(@$p . @$d, '01', 'an expensive transfer: one server');
like($log, qr/^200 cost /, 'the outcome is logged');

# by the speed of the link, and that of prefills, which is measured by now

($r, $p, $d, $log) = ask('/link', '{"prompt":"' . text(40000, 5001) . '"}');
is(@$p . @$d, '11', 'a fast link: two servers');
($r, $p, $d, $log) = ask('/slow', '{"prompt":"' . text(40000, 5002) . '"}');
is(@$p . @$d, '01', 'a slow link: one server');

close $_ for @busy;
ok(wait_for(sub { $t->load() == 0 }), 'the servers are idle');


# the other connectors

my $body = '{"stream":true,"prompt":"' . long() . '"}';
($r, $p, $d, $log) = ask('/store', $body);
is($d->[0]{body}, $body, 'a store: leg 2 is the client\'s request');
like($p->[0]{body}, qr/","?\s*,?"stream":false,"max_tokens":1}$/, 'leg 1 asks');
like($log, qr/^200 yes 200 /, 'the outcome is logged');

$body = '{"stream":true,"prompt":"' . long() . '"}';
($r, $p, $d, $log) = ask('/header', $body);
is(@$p . @$d, '01', 'a sidecar makes the legs');
is($d->[0]{body}, $body, 'from the client\'s request');
like($d->[0]{head}, qr/^X-Prefiller-Host-Port: 127.0.0.1:(?:\Q$t->{vars}{P0}\E|\Q$t->{vars}{P1}\E)\r?$/m,
     'and gets the prefill server');
($r, $p, $d) = ask('/header', '{"prompt":"x"}',
                   headers => { 'X-Prefiller-Host-Port' => 'evil:1' });
unlike($d->[0]{head}, qr/prefiller/i, 'not from the client');

($r, $p, $d, $log) = ask('/header/cost', '{"prompt":"' . long() . '"}');
like($log, qr/^200 cost - \[-\] /, 'one server is better');
unlike($d->[0]{head}, qr/prefiller/i, 'without a header');


# leg 1 fails: the next server, then the client's own request

# number of servers that got these: a kept connection can be tried twice

sub servers { return scalar(keys %{{ map { $_->{name} => 1 } @{$_[0]} }}) }

sub fails {
    my ($name, $do, $outcome, $n, %arg) = @_;

    my $body = '{"stream":true,"prompt":"' . long() . '","max_tokens":4}';
    my ($r, $p, $d, $log) = ask($arg{where} // '', $body, headers => $do);

    is($r->{status}, $arg{status} // 200, "$name: served");
    is(servers($p), $n, 'number of prefill servers');

    if (($arg{status} // 200) == 200) {
        is($d->[-1]{body}, $outcome eq 'yes'
           ? substr($body, 0, -1) . ",\"kv_transfer_params\":$params}" : $body,
           'leg 2');
    }

    like($log, qr/^\d+ $outcome /, "outcome $outcome");

    return $log;
}

my $log1 = fails('all fail', { 'X-P' => 'status 500' }, 'failed', 2);
like($log1, qr/^200 failed 500 /, 'its status is logged');
fails('reset', { 'X-P' => 'reset' }, 'failed', 2);
fails('an answer that breaks off', { 'X-P' => 'cut' }, 'failed', 1);
fails('an error of the client', { 'X-P' => 'status 400' }, 'failed', 1);
fails('overload', { 'X-P' => 'status 429' }, 'failed', 2);
fails('compressed', { 'X-P' => 'gzip' }, 'failed', 1);
fails('no JSON', { 'X-P' => 'say what' }, 'failed', 1);
$t->expect_log(qr/answered without "kv_transfer_params"/);
fails('no descriptor', { 'X-P' => 'say {"id":"1"}' }, 'answer', 1);
fails('null', { 'X-P' => 'say {"kv_transfer_params":null}' }, 'answer', 1);
fails('no fallback', { 'X-P' => 'status 500' }, 'failed', 2, where => '/strict',
      status => 503);


# leg 2 fails

fails('leg 2 is reset', { 'X-D' => 'reset' }, 'yes', 1, status => 502);

$body = '{"prompt":"' . long() . '"}';
($r, $p, $d, $log) = ask('/again', $body, headers => { 'X-D' => 'reset' });
is($r->{status}, 502, 'both decode servers fail');
is(servers($d), 2, 'both got requests');
like($d->[0]{body}, qr/kv_transfer/, 'the first one with the descriptor');
unlike($d->[1]{body}, qr/kv_transfer/, 'the second one without');
is(length $d->[1]{body}, length $d->[0]{body}, 'in as many bytes');
is_deeply(decode_json($d->[1]{body}), decode_json($body),
          'the client\'s request');
like($log, qr/^502 retried /, 'the outcome is logged');

($r, $p, $d, $log) = ask('/page', $body = '{"prompt":"' . long() . '"}',
                         headers => { 'X-D' => 'reset' });
is($p->[-1]{body}, $body, 'another location gets the client\'s request');


# all of this was counted

my $counted = $t->status()->{upstreams}{decode}{disaggregated};

is(join(' ', sort keys %$counted),
   'answer cached cost failed kind retried short unread yes',
   'all outcomes');
is($counted->{$_->[0]}, $_->[1], "count: $_->[0]")
    for [ kind => 8 ], [ cached => 1 ], [ cost => 4 ], [ answer => 2 ];
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_disaggregated_total\{upstream="decode",outcome="kind"\} 8$/m,
     'the metric');


# no load is left

ok(wait_for(sub { !grep { $_->{active} || $_->{pending} }
                  map { @{$_->{peers}} } values %{$t->status()->{upstreams}} }),
   'no load is left') or diag(explain($t->status()->{upstreams}));


# with engines that check whose descriptor it is

sub engine {
    my ($i) = @_;
    return $t->control($t->{vars}{"E$i"});
}

for my $stream (0, 1) {
    for my $i (1 .. 6) {
        my $r = $t->post("/engine$path",
                         chat(text(6000, 100 * $stream + $i), max_tokens => 20,
                              $stream ? (stream => JSON::PP::true) : ()));
        my $plain = $t->post($path,
                             chat(text(6000, 100 * $stream + $i),
                                  max_tokens => 20), port => $t->{vars}{E0});
        is($r->{status}, 200, 'served');
        unlike($r->{body}, qr/CORRUPT/, 'with its own prompt');

        my ($text) = $plain->{body} =~ /"content":"(.*?)"/;

        if ($stream) {
            is(join('', $r->{body} =~ /"content":"(.*?)"/g), $text,
               'like the answer of one server');

        } else {
            like($r->{body}, qr/"content":"\Q$text\E"/, 'like the answer of one server');
        }
    }
}

my @e = map { engine($_) } 0 .. 3;
is($e[0]{prefills} + $e[1]{prefills}, 12, 'all were prefilled by prefill servers');
is($e[2]{pulls} + $e[3]{pulls}, 12, 'and pulled');
is($_->{corrupt}, 0, 'none of them wrongly') for @e;
is($e[2]{prompt_tokens} + $e[3]{prompt_tokens}
   - $e[2]{cached_tokens} - $e[3]{cached_tokens}, 12,
   'only the last token of each was computed');

$t->control($t->{vars}{"E$_"}, { transfer_blocks => 30000 }) for 0, 1;
$r = $t->post("/engine$path", chat(text(6000, 300)));
is($r->{status}, 200, 'a long descriptor');
is(engine(2)->{pulls} + engine(3)->{pulls}, 13, 'is passed on');
is(engine(2)->{corrupt} + engine(3)->{corrupt}, 0, 'unchanged');


# single servers of each kind: their caches count all the same

is($t->post("/one$path", chat(text(6000, 301)))->{status}, 200, 'single servers');
cmp_ok($t->peer(@$_)->{prompt_bytes}, '>=', 6000, "its prompt is read: $_->[0]")
    for [ 'oneprefill', $t->{vars}{E0} ], [ 'onedecode', $t->{vars}{E2} ];


# two pairs in a zone: neither knows the other's caches and load

$held = chat(long());
ask('', $held);
($r, $p, $d, $log) = ask('', $held);
like($log, qr/^200 cached /, 'cached at a pair');
my $other = join ' ', map { counted($_) } qw(prefill decode);
($r, $p, $d, $log) = ask('/engine', $held);
like($log, qr/^200 yes /, 'not cached at the other one');
ok($t->idle(), 'which has ended');
is(join(' ', map { counted($_) } qw(prefill decode)), $other,
   'and is counted only there');

for my $kind ('P', 'D') {
    sent('P'), sent('D');

    my $s = $t->start("POST $path", chat(long()),
                      headers => { "X-$kind" => 'hold' });
    ok(wait_for(sub { sent($kind) }), "a pair is busy: $kind");
    my ($busy) = $t->load();
    cmp_ok($busy, '>', 0, 'with a request');

    ($r, $p, $d, $log) = ask('/engine', chat(long()));
    like($log, qr/^200 yes /, 'the other one serves');
    ok(wait_for(sub { ($t->load())[0] == $busy }), 'and is idle again');
    close $s;
    ok($t->idle(), 'the first one is idle, too');
}

$t->done();
