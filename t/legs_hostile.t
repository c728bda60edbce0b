#!/usr/bin/perl

# Two servers for one request, with hostile clients; and mirror, post_action,
# auth_request, error_page, HTTP/2, bodies in memory, in a file, in chunks with
# trailers.

use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Http2;

my $t = Kvroute->new();

# records of requests to servers, a line each; a prefill server gives a
# descriptor

sub server {
    my ($name) = @_;

    my $dir = $t->{dir};
    my $kind = substr($name, 0, 1);

    $t->serve($name, sub {
        my ($c) = @_;
        my ($n, $data) = (0, '');

        while (1) {
            my $end = index($data, "\r\n\r\n");
            my $head = $end < 0 ? '' : substr($data, 0, $end);
            my $len = $head =~ /^Content-Length: (\d+)/mi ? $1 : 0;

            if ($end < 0 || length $data < $end + 4 + $len) {
                sysread($c, $data, 1 << 20, length $data) or return;
                next;
            }

            my $body = substr($data, $end + 4, $len);
            substr($data, 0, $end + 4 + $len, '');

            my $text = '{"id":"2"}';
            my ($do) = $head =~ /^X-$kind: (.*?)\r?$/mi;

            $text = '{"kv_transfer_params":{"remote_host":"ours","id":"'
                    . "$$-" . $n++ . '"}}' if $kind eq 'P';

            open my $fh, '>>', "$dir/$kind.sent";
            syswrite($fh, pack('N/a*', pack('N/a* N/a*', $head, $body)));
            close $fh;

            if ($do && $do eq 'trickle') {
                syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: "
                             . length($text) . "\r\n\r\n");
                syswrite($c, $_), select(undef, undef, undef, .001)
                    for split //, $text;
                next;
            }

            my $status = $do && $do =~ /^(\d+)$/ ? $1 : 200;
            my $more = "HTTP/1.1 $status X\r\nContent-Type: application/json\r\n";
            $more .= "X-Accel-Redirect: /elsewhere\r\nX-Accel-Expires: 99\r\n"
                     . "Set-Cookie: p=1\r\nX-Accel-Buffering: no\r\n"
                if $do && $do eq 'accel';

            syswrite($c, $more . 'Content-Length: ' . length($text)
                         . "\r\n\r\n$text");
        }
    });
}

server($_) for qw(P D M A);

$t->{vars}{H2} = $t->port();

my $h2 = $t->version() >= '001025001' ? 'http2 on;' : '';
my $listen_h2 = $h2 ? '' : ' http2';

$t->upstreams(
    prefill => ['P', 'keepalive 4;'],
    decode => ['D', 'keepalive 4;'],
);

my $conf = <<'CONF';
    log_format kv '$http_x_n $uri $status $kvroute_disaggregated';
    access_log %%DIR%%/access.log kv;
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;

    kvroute_zone zone=z:8m;
    kvroute_zone zone=y:2m;

    upstream prefill2 {
        zone prefill2 64k;
        kvroute kv_cache zone=y;
        server 127.0.0.1:%%P%% max_fails=0;
    }
    upstream decode2 {
        zone decode2 64k;
        kvroute kv_cache zone=y;
        server 127.0.0.1:%%D%% max_fails=0;
    }

    kvroute_prefill prefill min=1k!;
    client_max_body_size 0;
    client_body_buffer_size 64k;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    listen 127.0.0.1:%%H2%%@h2@;
    @on@

    location / { proxy_pass http://decode; }
    location /file/ {
        client_body_in_file_only clean;
        proxy_pass http://decode/;
    }
    location /small/ {
        client_body_buffer_size 2k;
        proxy_pass http://decode/;
    }
    location /said/ {
        proxy_set_body $request_body;
        proxy_pass http://decode/;
    }
    location /length/ {
        proxy_set_header Content-Length $content_length;
        proxy_set_header X-Length $content_length;
        proxy_pass http://decode/;
    }
    location /two/ {
        kvroute_prefill prefill2 min=1k!;
        proxy_pass http://decode2/;
    }
    location /mirror/ { mirror /mirrored; proxy_pass http://decode/; }
    location = /mirrored {
        internal;
        kvroute_prefill off;
        proxy_pass http://127.0.0.1:%%M%%;
    }
    location /mirror3/ {
        mirror /mirrored;
        client_body_in_file_only clean;
        proxy_pass http://decode/;
    }
    location /mirror2/ { mirror /mirrored2; proxy_pass http://decode/; }
    location = /mirrored2 { internal; proxy_pass http://decode; }
    location /told/ { post_action /after; proxy_pass http://decode/; }
    location = /after { proxy_pass http://127.0.0.1:%%A%%; }
    location /told2/ { post_action /after2; proxy_pass http://decode/; }
    location = /after2 { proxy_pass http://decode; }
    location /auth/ { auth_request /may; proxy_pass http://decode/; }
    location = /may {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://127.0.0.1:%%A%%;
    }
    location /page/ {
        proxy_intercept_errors on;
        error_page 500 = @page2;
        proxy_pass http://decode/;
    }
    location @page2 {
        kvroute_prefill prefill2 min=1k!;
        rewrite ^/page(/.*) $1 break;
        proxy_pass http://decode2;
    }
    location /cached/ {
        proxy_cache c;
        proxy_cache_methods POST;
        proxy_cache_key $request_uri;
        proxy_cache_valid any 1h;
        proxy_pass http://decode/;
    }
CONF

$conf =~ s/\@h2\@/$listen_h2/;
$conf =~ s/\@on\@/$h2/;

$t->conf($conf);
$t->run();

my $path = '/v1/chat/completions';
my $seed = 1;

my %read;

sub sent {
    my ($kind) = @_;

    my $data = substr(Kvroute::slurp("$t->{dir}/$kind.sent"), $read{$kind} // 0);
    my @sent;

    # the last one may not have arrived yet

    while (length $data >= 4 && length $data >= 4 + unpack('N', $data)) {
        my ($head, $body) = unpack('x4 N/a* N/a*', $data);
        my $len = 4 + unpack('N', $data);

        push @sent, { head => $head, body => $body };
        $read{$kind} += $len;
        substr($data, 0, $len, '');
    }

    return @sent;
}

sub long { return text($_[0] // 2000, $seed++) }

my $asked = 0;

sub ask {
    my ($where, $body, %arg) = @_;

    sent($_) for qw(P D M A);

    my $r = $t->post("$where$path", $body, %arg,
                     headers => { %{$arg{headers} || {}}, 'X-N' => ++$asked });

    $t->logged($asked);

    return ($r, [ sent('P') ], [ sent('D') ]);
}

# forbidden members of a body: those at the root, by name

my %private = map { $_ => 1 } qw(kv_transfer_params bootstrap_host
    bootstrap_port bootstrap_room disaggregated_params disagg_prefill_dp_rank);

# without the prompt's text, for which JSON::PP needs seconds

sub members {
    my ($body) = @_;

    $body =~ s/"prompt":"\K[^"]{100,}//;

    return eval { JSON::PP->new->latin1->decode($body) };
}

sub says {
    my ($body) = @_;

    my $o = members($body);
    return 'no JSON' if ref $o ne 'HASH';

    return join ' ', map {
        $_ eq 'kv_transfer_params' && ref $o->{$_} eq 'HASH'
        && ($o->{$_}{do_remote_decode} || ($o->{$_}{remote_host} // '')
            eq 'ours') ? () : $_
    } grep { $private{$_} } sort keys %$o;
}


# transfer members in all spellings and places

my $evil = '{"remote_host":"10.0.0.1","a":[{"}":"]"}],"b":"\\"}"}';

my @members = (
    "\"kv_transfer_params\":$evil",
    "\"kv_transfer_params\"\n\t : \r\n $evil ",
    "\"kv_transfer_params\":$evil,\"kv_transfer_params\":$evil",
    "\"\\u006bv_transfer_params\":$evil",
    "\"kv\\u005ftransfer\\u005Fparams\":$evil",
    join('', '"', (map { sprintf '\\u%04x', ord } split //,
                   'kv_transfer_params'), "\":$evil"),
    '"kv_transfer_params":null', '"kv_transfer_params":"\\\\"',
    '"kv_transfer_params":-0.1e+99999', '"kv_transfer_params":[[[[1]]]]',
    '"kv_transfer_params":' . '[' x 900 . ']' x 900,
    '"bootstrap_room":' . '9' x 3000, '"bootstrap_host":"h","bootstrap_port":1',
    '"disaggregated_params":{"x":1},"disagg_prefill_dp_rank":1',
    join(',', ("\"kv_transfer_params\":{\"x\":1}") x 16),
);

for my $where ('', '/file', '/small') {
    for my $i (0 .. $#members) {
        my $m = $members[$i];
        my $prompt = '"prompt":"' . long() . '"';

        for my $body ("{$m,$prompt}", "{$prompt,$m}", "{$prompt , $m , \"a\":1}")
        {
            my ($r, $p, $d) = ask($where, $body, chunked => $i % 2 ? 777 : 0);
            my $bad = join '; ', grep { $_ ne '' }
                      map { says($_->{body}) } @$p, @$d;

            is($r->{status} . " $bad" . @$d, '200 1',
               "member $i is blanked, and the request served" . ($where && " $where"));
        }
    }
}

# members inside other values are not ours

my $inner = "{\"metadata\":{\"kv_transfer_params\":$evil,\"stream\":true},"
            . '"prompt":"' . long() . '","text":"\\"kv_transfer_params\\":1"';
my ($r, $p, $d) = ask('', "$inner}");
like($d->[0]{body}, qr/^\Q$inner\E,"kv_transfer_params":\{"remote_host":"ours"/,
     'members inside stay');
like($p->[0]{body}, qr/^\Q$inner\E,"stream":false/, 'for leg 1 too');


# large bodies

for my $where ('', '/file') {
    my $body = "{\"kv_transfer_params\":$evil,\"stream\":true,\"prompt\":\""
               . long() x 1000 . '","max_tokens":9}';
    ($r, $p, $d) = ask($where, $body, $where ? (chunked => 65536) : ());
    is($r->{status}, 200, "2 MB $where");
    is(says($_->{body}), '', 'cut') for @$p, @$d;
    is(members($p->[0]{body})->{max_tokens}, 1,
       'leg 1 asks for one token');
    is(members($d->[0]{body})->{max_tokens}, 9,
       'leg 2 for the client\'s');
}


# a body that the location makes from the request's

for my $chunk (0, 100) {
    my $body = '{"prompt":"' . long() . '","max_tokens":9}';
    ($r, $p, $d) = ask('/said', $body, chunked => $chunk);
    is(members($p->[0]{body})->{max_tokens}, 1, 'leg 1 has its own limit');
    is(members($d->[0]{body})->{max_tokens}, 9, 'leg 2 has the client\'s');
    like($d->[0]{body}, qr/ours/, 'with the descriptor');
}


# a location that sets the length itself: it fits each request

for my $chunk (0, 100) {
    for my $do (200, 503) {
        my $body = '{"prompt":"' . long() . '","max_tokens":9}';
        ($r, $p, $d) = ask('/length', $body, chunked => $chunk,
                           headers => { 'X-P' => $do });
        my $name = "Content-Length is set, leg 1 $do" . ($chunk && ', chunked');

        for (@$p, @$d) {
            is(join(' ', $_->{head} =~ /^(?:Content|X)-Length: (\d+)/mg),
               join(' ', (length $_->{body}) x 2), $name);
            like($_->{body}, qr/\}$/, 'the whole body');
        }

        is($d->[0]{body} =~ /ours/ ? 200 : 503, $do, "$name: leg 2");
    }
}


# too many forbidden members

($r) = ask('', '{' . join(',', ("\"kv_transfer_params\":{\"x\":1}") x 17)
               . ',"prompt":"' . long() . '"}');
is($r->{status}, 400, 'too many members are rejected');


# a chunked body with trailers

my $body = '{"prompt":"' . long() . '"}';
my $s = $t->connect();
syswrite($s, "POST $path HTTP/1.1\r\nHost: h\r\nContent-Type: application/json"
             . "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
             . sprintf("%x\r\n%s\r\n", length $body, $body)
             . "0\r\nX-Prefiller-Host-Port: evil\r\nContent-Length: 3\r\n\r\n");
$r = $t->finish($s);
is($r->{status}, 200, 'trailers');
is(scalar(grep { $_->{head} =~ /evil/ } sent('P'), sent('D')), 0,
   'are not sent on');


# leg 1's answers that would make nginx do something

for my $do (qw(accel trickle)) {
    ($r, $p, $d) = ask('', '{"prompt":"' . long() . '"}',
                       headers => { 'X-P' => $do });
    is("$r->{status} " . @$p . @$d, '200 11', "leg 1: $do");
    ok(!exists $r->{headers}{'set-cookie'}, 'none of its headers reach the client');
}


# other uses of the request

sub whole {
    my ($where, $kind, $name) = @_;

    my $body = '{"stream":true,"prompt":"' . long() . '","max_tokens":3}';
    my ($r, $p, $d) = ask($where, $body);
    my @other = ();

    is($r->{status}, 200, "$name: served");
    ok(wait_for(sub { push @other, sent($kind); @other }), "$name: and done");

    return ($body, \@other, $d);
}

my ($sent, $other);
($sent, $other, $d) = whole('/mirror', 'M', 'mirror');
is($other->[0]{body}, $sent, 'a mirror gets the client\'s request');

($sent, $other, $d) = whole('/mirror3', 'M', 'mirror of a file');
is($other->[0]{body}, $sent, 'gets the client\'s request');
is($d->[0]{body}, $sent, 'and so does the one server');

$sent = '{"stream":true,"prompt":"' . long() . '","max_tokens":3}';
($r, $p, $d) = ask('/mirror2', $sent);
my @d = @$d;
ok(wait_for(sub { push @d, sent('D'); @d == 2 }), 'a mirror to the same pool');
is(join(' ', sort map { says($_->{body}) ne '' ? 'bad' : $_->{body} =~ /ours/
                        ? 'descriptor' : $_->{body} eq $sent ? 'plain' : '?' }
             @d), 'descriptor plain', 'has the client\'s request');

# a mirror to the same pool must not get a rejected body: a later request
# arrives there without it

for my $evil ("{\"kv_transfer_params\":$evil,\"x\":\"" . 'x' x 17e6 . '"}',
              join('', map { "$_\0" } split //, "{\"kv_transfer_params\":$evil}"))
{
    my @seen;

    is($t->post("/mirror2$path", $evil)->{status}, length $evil > 17e6 ? 413 : 400,
       'an unreadable body is rejected');

    $t->post("/mirror2$path", '{"prompt":"marker"}');
    ok(wait_for(sub { push @seen, sent('D');
                      2 == grep { $_->{body} =~ /marker/ } @seen }), 'mirrored');
    is(scalar(grep { $_->{body} =~ /remote_host|r\0e\0m/ } @seen), 0,
       'and is not mirrored');
}

($sent, $other) = whole('/told', 'A', 'post_action');
is($other->[0]{body}, $sent, 'a post_action gets the client\'s request')
    if length $other->[0]{body};

($r, $p, $d) = ask('/told2', '{"prompt":"' . long() . '"}');
is($r->{status}, 200, 'a post_action to the same pool');
my %ids;
@d = @$d;
wait_for(sub { push @d, sent('D'); @d >= 2 }, 2);
$ids{$_}++ for map { $_->{body} =~ /"id":"(.*?)"/ } @d;
is(scalar(grep { $_ > 1 } values %ids), 0, 'gets no used descriptor');

($sent, $other, $d) = whole('/auth', 'A', 'auth_request');
like($d->[0]{body}, qr/ours/, 'uses two servers');

($r, $p, $d) = ask('/page', '{"prompt":"' . long() . '"}',
                   headers => { 'X-D' => '500' });
is(scalar(@$p), 2, 'an error_page makes a pair of its own');
%ids = ();
$ids{$_}++ for map { $_->{body} =~ /"id":"(.*?)"/ } @$d;
is(join(' ', values %ids), '1 1', 'with its own descriptor');

for (1 .. 2) {
    ($r, $p, $d) = ask('/cached', '{"prompt":"' . long() . '"}');
    is($r->{body}, '{"id":"2"}', 'a cache stores the answer of leg 2 only');
}

# two zones, two pools

for my $where ('', '/two') {
    my $same = '{"prompt":"' . text(2000, 5000) . '"}';
    ($r, $p, $d) = ask($where, $same);
    is(@$p . @$d, '11', "zones are independent: $where");
}


# HTTP/2: the body in pieces

sent($_) for qw(P D);
$body = "{\"kv_transfer_params\":$evil,\"stream\":true,\"prompt\":\"" . long(9000)
        . '"}';
$s = h2_connect($t);
h2_post($s, 1, $path, [ $body =~ /(.{1,1000})/gs, '' ]);
ok($t->read_until($s, qr/"id":"2"/), 'HTTP/2');
($p, $d) = ([ sent('P') ], [ sent('D') ]);
is(says($_->{body}), '', 'blanked') for @$p, @$d;
like($d->[0]{body}, qr/ours/, 'by two servers');

# a stream that is reset during leg 1

$body = '{"prompt":"' . long() . '"}';
h2_post($s, 3, $path, $body, 'x-p', 'trickle');
ok(wait_for(sub { sent('P') }), 'leg 1 of a stream');
h2_reset($s, 3);
ok($t->idle(), 'ends with the stream');
close $s;

$t->done();
