#!/usr/bin/perl

# Prefill and decode requests at the same time: the requests that each server
# receives; if one fails or leaves, the other one does not wait for it.

use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Http2;
use Kvroute::Recorder;

my $t = Kvroute->new();

recorder($t, $_, '{"text":"P"}') for qw(P0 P1);
recorder($t, $_, '{"text":"D"}') for qw(D0 D1);

# Two servers that store a body in a file.  The prefill server reads nothing before
# a signal; the decode server ends its answer at a signal.

sub large {
    my ($name, $before, $within) = @_;

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        until ($data =~ /\r\n\r\n/) {
            sysread($c, $data, 1, length $data) or return;
        }

        my ($left) = $data =~ /^Content-Length: (\d+)/mi;
        $data = '';

        wait_for(sub { -e "$t->{dir}/$before" }) or return;

        while ($left > 0) {
            $left -= sysread($c, $data, 1 << 20, length $data) || return;
        }

        Kvroute::write_file("$t->{dir}/$name.new", $data);
        rename "$t->{dir}/$name.new", "$t->{dir}/$name.body";

        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"text\":");
        wait_for(sub { -e "$t->{dir}/$within" }) or return;
        syswrite($c, '"L"}');
    });
}

large('LP', 'heard', 'heard');
large('LD', '.', 'ends');

$t->{vars}{DEAD} = $t->port();
$t->{vars}{H2} = $t->port();
$t->{vars}{LISTEN} = $t->version() >= '001025001' ? '; http2 on' : ' http2';

my @engine = ('--model', 'm', '--hardware', 'none', '--kv-transfers',
              "$t->{dir}/transfers");

$t->engines(2, @engine, '--disaggregation-mode', 'prefill');
$t->engines(2, @engine, '--disaggregation-mode', 'decode');
$t->engines(4, @engine);

# an address where connect() fails at once: a multicast group

my $none = $t->{vars}{NONE} = '224.0.0.1:9';

$t->upstreams(
    prefill => [qw(P0 P1), 'keepalive 4;'],
    one => ['P0'],
    none => ['P0 down', 'P1 down'],
    spare => ['P0 down', 'P1 backup'],
    decode => ['D0', 'keepalive 4;'],
    two => [qw(D0 D1)],
    half => ['DEAD', 'D1 backup'],
    same => ["server $none fail_timeout=1h;", 'D1'],
    same2 => ["server $none fail_timeout=1h;", 'D1'],
    again => ["server $none fail_timeout=1h;", 'D1 backup'],
    again2 => ["server $none fail_timeout=1h;", 'D1 backup'],
    lprefill => ['LP'],
    ldecode => ['LD'],
);

$t->upstream('eprefill', 'E0 E1', 'keepalive 4;');
$t->upstream('edecode', 'E2 E3', 'keepalive 4;');
$t->upstream('mprefill', 'E4 E5');
$t->upstream('mdecode', 'E6 E7');

$t->conf(<<'EOF');
    log_format kv '$http_x_n $status $kvroute_disaggregated $kvroute_leg1_status '
                  '[$kvroute_leg1_peer]';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;

    kvroute_prefill prefill connector=sglang:7001;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    listen 127.0.0.1:%%H2%%%%LISTEN%%;

    location / { proxy_pass http://decode; }
    location /unbuffered/ {
        proxy_request_buffering off;
        proxy_pass http://decode/;
    }
    location /whole/ { proxy_buffering off; proxy_pass http://decode/; }
    location /file/ {
        client_body_in_file_only clean;
        proxy_pass http://decode/;
    }
    location /length/ {
        proxy_set_header Content-Length $content_length;
        proxy_pass http://decode/;
    }
    location /cached/ {
        proxy_cache c;
        proxy_cache_methods POST;
        proxy_cache_key $request_uri;
        proxy_cache_valid any 1h;
        proxy_cache_lock on;
        proxy_cache_lock_age 1h;
        proxy_cache_lock_timeout 1h;
        proxy_pass http://decode/;
    }
    location /once/ {
        kvroute_prefill one connector=sglang;
        proxy_pass http://decode/;
    }
    location /none/ {
        kvroute_prefill none connector=sglang;
        proxy_pass http://decode/;
    }
    location /spare/ {
        kvroute_prefill spare connector=sglang;
        proxy_pass http://decode/;
    }
    location /large/ {
        kvroute_prefill lprefill connector=sglang;
        client_max_body_size 16m;
        proxy_buffering off;
        proxy_pass http://ldecode/;
    }
    location /moon/ {
        kvroute_prefill prefill connector=mooncake:7001 min=1!;
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://two/;

        location /moon/file/ {
            client_body_in_file_only clean;
            proxy_pass http://two/;
        }
        location /moon/whole/ {
            proxy_buffering off;
            proxy_pass http://two/;
        }
        location /moon/strict/ {
            kvroute_prefill prefill connector=mooncake min=1!
                            fallback=none;
            proxy_pass http://two/;
        }
    }
    location /engine/ {
        kvroute_prefill eprefill connector=sglang;
        proxy_pass http://edecode/;
    }
    location /moons/ {
        kvroute_prefill mprefill connector=mooncake min=1!;
        proxy_pass http://mdecode/;
    }
    location /same/ {
        kvroute_prefill same2 connector=sglang;
        kvroute_pin %%NONE%%;
        proxy_pass http://same/;
    }
    location /again/ {
        kvroute_prefill again2 connector=sglang;
        proxy_pass http://again/;
    }
    location /half/ {
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://half/;
    }
    location /page/ { error_page 502 = @other; proxy_pass http://decode/; }
    location @other {
        kvroute_prefill off;
        proxy_pass http://127.0.0.1:%%D1%%;
    }
EOF

$t->run();

my $path = '/v1/chat/completions';
my $body = '{"model":"m","stream":true,"messages":[{"role":"user","content":'
           . '"Once upon a time"}],"max_tokens":7}';
my $asked = 0;
my $c = 0;

# requests to a kind of servers, closed ones, and their meetings

sub asked { return grep { !$_->{gone} } sent($t, $_[0]) }

# a close can be seen after the next request has begun

sub left {
    return scalar(grep { $_->{gone} && $_->{head} =~ /^X-N: $asked\r?$/m }
                  sent($t, $_[0]));
}

sub room { return $_[0]{body} =~ /"bootstrap_room":(\d+)}$/ ? $1 : 'none' }
sub both { return asked('P') && asked('D') }

# starts a request; X-P and X-D tell its servers what to do

sub begin {
    my ($where, $do, %arg) = @_;

    unlink map { "$t->{dir}/$_.sent" } qw(P D);

    return $t->start("POST $where$path", $arg{body} // $body,
                     headers => { %$do, 'X-N' => ++$asked }, %arg);
}

# ends it: checks its status, its log line, and the numbers of requests

sub end {
    my ($s, $status, $line, $p, $d, $name) = @_;

    my $r = $t->finish($s);

    close $s if $s != $c;

    is($r->{status}, $status, "$name: the client's answer");
    like($t->logged($asked), qr/^$line/, 'the log line');
    wait_for(sub { asked('P') >= $p && asked('D') >= $d });
    is(scalar(my @p = asked('P')), $p, 'requests to prefill servers');
    is(scalar(my @d = asked('D')), $d, 'decode servers');

    return $r;
}


# both get the same request

for my $where ('', '/length', '/whole', '/file') {
    my $r = end(begin($where, {}, $where =~ /e$/ ? (chunked => 11) : ()), 200,
                '200 yes ', 1, 1, "both legs $where");
    my ($p, $d) = (asked('P'), asked('D'));

    is($r->{body}, '{"text":"D"}', 'the decode server answers');
    is($p->{body}, $d->{body}, 'both have the same body');
    is($d->{body}, substr($body, 0, -1) . ',"bootstrap_host":"127.0.0.1",'
       . '"bootstrap_port":7001,"bootstrap_room":' . room($d) . '}',
       'the client\'s, and the meeting');
    like($_->{head}, qr/^POST \Q$path\E HTTP/, 'its path') for $p, $d;
}

# a body that nginx would not buffer, and clients with other protocols

end(begin('/unbuffered', {}, chunked => 11), 200, '200 yes ', 1, 1,
            'without buffering');
is((asked('P'))[0]{body}, (asked('D'))[0]{body}, 'both have the whole body');
end(begin('', {}, version => '1.0'), 200, '200 yes ', 1, 1, 'HTTP/1.0');

# leg 2 has sent its body, which is in a file, and leg 1 has not

my $s = begin('/large', {}, body => '{"stream":true,"prompt":"'
              . text(12 << 20, 5) . '"}');
ok($t->read_until($s, qr/"text":/), 'leg 2 answers before leg 1 is read');
$t->step('heard');
ok(wait_for(sub { -e "$t->{dir}/LP.body" }), 'the file still exists');
$t->step('ends');
like($t->logged($asked), qr/^200 yes/, 'all is well');
close $s;
my @large = map { Kvroute::slurp("$t->{dir}/$_.body") } qw(LP LD);
cmp_ok(length $large[0], '>', 12 << 20, 'the whole body');
ok($large[0] eq $large[1], 'and both have the same');

my %rooms;

for (1 .. 20) {
    $t->finish(begin('', {}));
    wait_for(\&both);
    $rooms{room((asked('D'))[0])} = 1;
}

is(scalar(keys %rooms), 20, 'each pair has a room of its own');
ok(!(grep { $_ >= 2 ** 63 } keys %rooms), 'of 63 bits');

$s = begin('', { 'X-P' => 'wait go plain', 'X-D' => 'wait go plain' });
ok(wait_for(\&both), 'both have a request, and neither has answered');
$t->step('go');
end($s, 200, '200 yes', 1, 1, 'they wait for each other');

$s = begin('/cached', { 'X-P' => 'step met plain', 'X-D' => 'wait met plain' });
end($s, 200, '200 yes', 1, 1, 'a cache delays neither of them');

$s = begin('', {}, body => '{"bootstrap_room":7,"bootstrap_host":"evil",'
           . '"prompt":"x"}');
end($s, 200, '200 yes', 1, 1, 'a meeting in the client\'s body');
unlike($_->{body}, qr/evil|:7,/, 'is blanked') for asked('P'), asked('D');


# requests that one room cannot serve, or not two servers

for my $text ('{"prompt":["a","b"]}', '{"prompt":"a","n":2}') {
    end(begin('', {}, body => $text), 200, '200 kind ', 0, 1, $text);
}

is($t->post('/v1/embeddings', '{"input":"a"}')->{status}, 200, 'embeddings');
end(begin('/none', {}), 503, '503 nobody', 0, 0, 'no prefill server');
end(begin('/spare', {}), 200, '200 yes', 1, 1,
    'a prefill server of the backups');


# the prefill server fails: the decode request is closed, and a new pair gets
# the request

for my $case ([ 'status 500', 500 ], [ 'reset', 502 ], [ 'cut', 200 ],
              [ 'status 408', 408 ], [ 'status 429', 429 ])
{
    my ($do, $status) = @$case;

    $s = begin('/once', { 'X-P' => $do, 'X-D' => 'hold' });
    end($s, 502, "502 failed $status", 2, 2, "leg 1: $do");
    ok(wait_for(sub { left('D') == 2 }), 'leg 2 is closed');
}

$s = begin('', { 'X-P' => 'status 503', 'X-D' => 'hold' });
end($s, 502, '502 failed 503', 2, 2, 'two pairs fail');
ok(wait_for(sub { left('D') == 2 }), 'both decode requests are closed');
my @d = asked('D');
isnt(room($d[0]), room($d[1]), 'in different rooms');
is(join(' ', sort map { room($_) } asked('P')),
   join(' ', sort map { room($_) } @d), 'each with its own');

$s = begin('', { 'X-P' => 'status 400', 'X-D' => 'hold' });
end($s, 400, '400 failed 400', 1, 1, 'leg 1 rejects the request');
ok(wait_for(sub { left('D') == 1 }), 'leg 2 is closed');


# the decode server fails: the prefill request is closed

for my $case ([ 'status 500', 500 ], [ 'status 404', 404 ], [ 'reset', 502 ],
              [ 'close', 502 ])
{
    my ($do, $status) = @$case;

    $s = begin('', { 'X-P' => 'hold', 'X-D' => $do });
    end($s, $status, "$status yes", 1, 1, "leg 2: $do");
    ok(wait_for(sub { left('P') == 1 }), 'leg 1 is closed');
}

$s = begin('/half', { 'X-P' => 'hold', 'X-D1' => 'plain' });
end($s, 200, '200 yes', 1, 1, 'connection refused: another decode server');
is(room(asked('P')), room(asked('D')), 'in the same room');
ok(wait_for(sub { left('P') == 1 }), 'leg 1 is closed');

# Both legs are for one server, and leg 2 finds it unreachable before leg 1 has begun:
# both go to another pair.

for my $where ('/same', '/again') {
    $s = begin($where, { 'X-D' => 'plain' });
    is($t->finish($s)->{status}, 200, "$where: another pair computes the prompt");
    like($t->logged($asked), qr/^200 yes /, 'the log line');
    close $s;
}

$s = begin('/page', { 'X-P' => 'hold', 'X-D0' => 'reset', 'X-D1' => 'plain' });
end($s, 200, '200', 1, 2, 'an error page');
is((asked('D'))[1]{body}, $body, 'gets the client\'s request');
ok(wait_for(sub { left('P') == 1 }), 'leg 1 is closed');


# the client leaves

$s = begin('', { 'X-P' => 'hold', 'X-D' => 'hold' });
ok(wait_for(\&both), 'both wait');
close $s;
ok(wait_for(sub { left('P') == 1 && left('D') == 1 }), 'both are closed');


# leg 2 has its first token: leg 1 is not needed any more

$s = begin('', { 'X-P' => 'wait token reset',
                 'X-D' => 'head event wait end end' });
ok($t->read_until($s, qr/"The"/), 'a token');
$t->step('token');
ok(wait_for(sub { $t->log() =~ /reset by peer.*subrequest: "\/v1/ }),
   'leg 1 fails');
$t->step('end');
like(do { local $/; <$s> }, qr/^(?:\r\n)?0\r\n\r\n$/, 'and the answer is complete');

# before the first token, but after the head, the answer is cut, and the log
# names leg 1

for my $case ([ '/whole', 'reset', 502 ], [ '/whole', 'status 500', 500 ],
              [ '/moon/whole', 'status 503', 503 ])
{
    my ($where, $do, $status) = @$case;

    $s = begin($where, { 'X-P' => "wait headed$asked $do",
                         'X-D' => 'head hold' });
    ok($t->read_until($s, qr/\r\n\r\n/), "$where: the head of a stream");
    $t->step('headed' . ($asked - 1));
    is(do { local $/; <$s> } // '', '', "leg 1: $do: no end, and no error event");
    ok(wait_for(sub { left('D') == 1 }), 'leg 2 is closed');
    is(asked('P') . asked('D'), '11', 'no other server gets it');
    like($t->logged($asked), qr/^200 failed $status \[127/, 'the log line');
}

# leg 1's answer is read, at any length, whether or not the client reads

for my $where ('', '/whole') {
    my $drained = 'drained' . length $where;

    $s = begin($where, { 'X-P' => "head flood 20000000 end step $drained",
                         'X-D' => "wait $drained plain" });
    end($s, 200, '200 yes 200', 1, 1, 'a long answer of leg 1');
}

# leg 2 ends while leg 1 runs: the client's connection is free for the next

$c = $t->connect();

for my $where ('', '/whole') {
    $s = begin($where, { 'X-P' => 'hold', 'X-D' => 'plain' }, socket => $c);
    end($s, 200, '200 yes', 1, 1, 'leg 2 ends');
    ok(wait_for(sub { left('P') == 1 }), 'leg 1 is closed');
    end(begin($where, {}, socket => $c), 200, '200 yes', 1, 1,
        'the next request of that connection');
}


# Mooncake: leg 1 asks for a token, and any server can serve without it

my $asks = '"kv_transfer_params":{"do_remote_decode":true,'
           . '"do_remote_prefill":false,"transfer_id":"xfer-';
my $moon = 1;

for my $where ('', '/file') {
    for my $case ([ '{"stream":true,', '{', '}', '' ],
                  [ '{', '{', ',"max_tokens":7,"a":{"stream":1} }',
                    ',"a":{"stream":1} ' ],
                  [ '{"min_tokens":2,"stream_options":{},', '{',
                    ',"stream":true}', '' ],
                  [ '{"max_completion_tokens":9,', '{', ',"kv_transfer_params":'
                    . '{"remote_host":"evil"}}', ' ' x 44 ])
    {
        my ($before, $first, $after, $last) = @$case;
        my $prompt = '"prompt":"' . text(100, $moon++) . '"';
        my $text = "$before$prompt$after";

        end(begin("/moon$where", {}, body => $text, $where ? (chunked => 9)
            : ()), 200, '200 yes', 1, 1, "$before...$after$where");

        my ($p, $d) = (asked('P'), asked('D'));
        my ($id) = $p->{body} =~ /"xfer-(\d+)"\}\}$/;
        my ($port) = $p->{head} =~ /^Host: .*?(\d*)\r?$/m;

        $text =~ s/(,"kv_transfer_params":\{.*?\})\}$/' ' x length($1) . '}'/e;
        $last = ' ' x length $1 if $1;
        (my $whole = $text) =~ s/\}$//;

        is($p->{body}, "$first$prompt$last,\"stream\":false,\"max_tokens\":1,"
           . "$asks$id\"}}", 'leg 1');
        is($d->{body}, "$whole,\"kv_transfer_params\":{\"do_remote_decode\":"
           . 'false,"do_remote_prefill":true,"remote_bootstrap_addr":'
           . '"http://127.0.0.1:7001","remote_engine_id":"127.0.0.1:'
           . "$t->{vars}{$p->{name}}\",\"transfer_id\":\"xfer-$id\"}}",
           'leg 2');
    }
}

sub prompt { return '{"stream":true,"prompt":"' . text(100, $moon++) . '"}' }

my $text = prompt();
$s = begin('/moon', { 'X-P' => 'status 500', 'X-D' => 'met hold' },
           body => $text);
end($s, 200, '200 failed 500', 2, 3, 'leg 1 fails twice');
is(scalar(grep { $_->{body} eq $text } asked('D')), 1,
   'the last one gets the client\'s request');
ok(wait_for(sub { left('D') == 2 }), 'the waiting ones are closed');

$s = begin('/moon/strict', { 'X-P' => 'reset', 'X-D' => 'hold' },
           body => prompt());
end($s, 502, '502 failed 502', 2, 2, 'no fallback');

$s = begin('/moon/strict', { 'X-P' => 'status 400', 'X-D' => 'met hold' },
           body => prompt());
end($s, 200, '200 failed 400', 1, 2, 'client errors need no fallback');

$text = prompt();
$s = begin('/moon', { 'X-P' => 'hold', 'X-D' => 'met status 500' },
           body => $text);
end($s, 200, '200 retried', 1, 2, 'a decode server fails');
my ($one, $two) = asked('D');
is(length $one->{body}, length $two->{body}, 'the next gets as many bytes');
is_deeply(decode_json($two->{body}), decode_json($text),
          'the client\'s request');
ok(wait_for(sub { left('P') == 1 }), 'leg 1 is closed');


# reload and kill

$s = begin('', { 'X-P' => 'wait reloaded plain', 'X-D' => 'wait reloaded plain' });
ok(wait_for(\&both), 'both legs');
$t->reload();
$t->step('reloaded');
end($s, 200, '200 yes', 1, 1, 'over a reload');

$s = begin('', { 'X-P' => 'hold', 'X-D' => 'hold' });
ok(wait_for(\&both), 'both legs');
$t->kill_worker($_) for $t->active_workers();
ok(wait_for(sub { left('P') == 1 && left('D') == 1 }),
   'both are closed when a worker is killed');
wait_for(sub { $t->active_workers() == $t->{workers} });
end(begin('', {}), 200, '200 yes', 1, 1, 'the next request');

ok(wait_for(sub { !grep { $_->{active} || $_->{pending} }
                  map { @{$_->{peers}} } values %{$t->status()->{upstreams}} }),
   'no load is left') or diag(explain($t->status()->{upstreams}));



# engines that check whom they meet, many requests at a time

for my $where ('/engine', '/moons') {
    my @open;

    for my $i (1 .. 24) {
        my $chat = chat(text(3000, 900 + $i), max_tokens => 5,
                        $i % 2 ? (stream => JSON::PP::true) : ());
        push @open, $t->start("POST $where$path", $chat);

        # some clients leave

        close pop @open if $i % 8 == 0;
    }

    for my $s (@open) {
        my $r = $t->finish($s);

        is($r->{status}, 200, "$where: served");
        like($r->{body}, qr/"finish_reason":"(?:length|stop)"/, 'to its end');
        unlike($r->{body}, qr/CORRUPT/, 'with its own prompt');
    }
}

ok(wait_for(sub { !grep { $t->control($t->{vars}{"E$_"})->{open_requests} }
                  0 .. 7 }), 'no request is left waiting');

my @met = (0) x 4;

for my $i (0 .. 7) {
    my $e = $t->control($t->{vars}{"E$i"});
    is($e->{corrupt}, 0, "engine $i has met the right requests");
    $met[$i / 2] += $e->{$i % 4 < 2 ? 'prefills' : 'pulls'};
    is($e->{$i % 4 < 2 ? 'pulls' : 'prefills'}, 0, 'in its own role');
}

cmp_ok($_, '>=', 21, 'all requests have met') for @met;


# HTTP/2: several on one connection, each with two legs; one is canceled

$s = h2_connect($t);

h2_post($s, 2 * $_ + 1, "/engine$path",
        chat(text(3000, 950 + $_), max_tokens => 5)) for 0 .. 7;
h2_reset($s, 15);

cmp_ok(h2_ended($s, 7), '>=', 7, 'HTTP/2: answers come to their end');
ok(wait_for(sub { !grep { $t->control($t->{vars}{"E$_"})->{open_requests} }
                  0 .. 7 }), 'no request is left waiting');
is($t->control($t->{vars}{"E$_"})->{corrupt}, 0, 'no wrong meeting') for 0 .. 3;
close $s;

is($t->post($path, chat('alone'), port => $t->{vars}{E2})->{status}, 400,
   'a server of SGLang serves no request alone');

$t->done();
