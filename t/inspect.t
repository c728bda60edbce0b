#!/usr/bin/perl

# The body chooses the upstream. Bodies in memory and in
# temporary files, in pieces, chunked, over HTTP/2; the engine receives what the
# client sent.

use Digest::MD5 qw(md5_hex);
use lib 't/lib';
use Kvroute;
use Time::HiRes qw(sleep);

my $t = Kvroute->new();

# servers that return the digest of the body they got

for my $name (map { "B$_" } 0 .. 4) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (sysread($c, $data, 65536, length $data)) {
            my $n = index($data, "\r\n\r\n");
            next if $n < 0;

            my ($len) = $data =~ /^Content-Length: (\d+)/mi;
            next if length($data) < $n + 4 + ($len // 0);

            my $body = substr($data, $n + 4);
            my $out = "$name " . md5_hex($body) . ' ' . length $body;

            syswrite($c, "HTTP/1.1 200 OK\r\nX-Backend: $name\r\n"
                         . "Content-Length: " . length($out)
                         . "\r\nConnection: close\r\n\r\n$out");
            return;
        }
    });
}

$t->{vars}{H2} = $t->port();

my $plus = $t->version() ge '001025001';

$t->{vars}{HTTP2} = $t->{version} =~ /http_v2_module/
    ? ($plus ? "listen 127.0.0.1:$t->{vars}{H2}; http2 on;"
             : "listen 127.0.0.1:$t->{vars}{H2} http2;") : '';

$t->upstream('small', 'B0 B1');
$t->upstream('large', 'kvroute kv_cache zone=second;', 'B2 B3');

$t->upstream('other', 'plain', 'B4');

$t->conf(<<'EOF');
    %%LOG%%
    kvroute_zone zone=z:2m;
    kvroute_zone zone=second:2m;

    map $kvroute_model $pool {
        volatile;
        default  other;
        small    small;
        large    large;
        ~^org/   large;
    }

    client_max_body_size 8m;
    proxy_http_version 1.1;

    %%HTTP2%%

    location / {
        client_body_buffer_size 1m;
        proxy_pass http://$pool;
    }
    location /file/ {
        client_body_buffer_size 1k;
        proxy_pass http://$pool;
    }
    location /only/ {
        client_body_in_file_only clean;
        proxy_pass http://$pool;
    }
    location /unbuffered/ {
        proxy_request_buffering off;
        proxy_pass http://$pool;
    }
    location /small-limit/ {
        client_max_body_size 1k;
        proxy_pass http://$pool;
    }
    location /page/ {
        error_page 400 413 = /page.txt;
        client_max_body_size 1k;
        proxy_pass http://$pool;
    }
    location = /page.txt { root %%DIR%%; }
    location /short/ {
        client_max_body_size 0;
        proxy_pass http://$pool;
    }
EOF

Kvroute::write_file("$t->{dir}/page.txt", 'a page');

$t->run();

my $seed = 20000;
my $id = 0;

# posts a body; checks that it arrives unchanged; returns the server

sub ask {
    my ($uri, $body, $what, %arg) = @_;

    $id++;

    my $r = $t->post("$uri?n=i$id", $body, %arg);
    my ($name, $md5, $len) = split / /, $r->{body};

    is($md5, md5_hex($body), "$what: the body is untouched");

    return $name;
}

sub body { return chat(text($_[0], $seed++), model => $_[1]) }


for my $uri ('/', '/file/', '/only/', '/unbuffered/') {
    for my $size (10, 900, 5000, 300000) {
        my $what = "$uri $size bytes";

        like(ask($uri, body($size, 'small'), $what), qr/^B[01]$/,
             "$what: a model");
        like(ask($uri, body($size, 'large'), $what), qr/^B[23]$/,
             "$what: another model");
        is(ask($uri, body($size, 'none'), $what), 'B4', "$what: an unknown model");
    }

    like(ask($uri, body(2000, 'org/m'), $uri), qr/^B[23]$/, "$uri: a pattern");
    like(ask($uri, body(9000, 'small'), "$uri in pieces", pieces => 1500),
         qr/^B[01]$/, "$uri: in pieces");
    like(ask($uri, body(9000, 'large'), "$uri chunked", chunked => 700),
         qr/^B[23]$/, "$uri: chunked");
}

# affinity within the chosen upstream, with its own zone

for my $uri ('/', '/file/') {
    for my $model (qw(small large)) {
        my $body = body(20000, $model);
        my $home = ask($uri, $body, $model);
        my @to = map { ask($uri, $body, $model) } 1 .. 4;

        is("@to", join(' ', ($home) x 4), "$uri: $model stays");

        my $r = $t->receipt("i$id");
        is($r->{reason}, 'affinity', "$uri: $model by affinity");
        cmp_ok($r->{matched}, '>', 18000, "$uri: $model matches");
        is($r->{model}, $model, "$uri: $model is logged");
    }
}

# without a model in the body: the default, and no error

is(ask('/', 'not JSON', 'no JSON'), 'B4', 'no JSON: the default');
is(ask('/', '{"messages":[]}', 'no model'), 'B4', 'no model: the default');
is(ask('/', '{"model":"small"', 'cut short'), 'B4', 'cut short: the default');
is($t->from($t->get('/')), 'B4', 'no body: the default');
is($t->from($t->post('/', '')), 'B4', 'an empty body: the default');
is($t->post('/small-limit/', body(3000, 'small'))->{status}, 413,
   'too large for nginx: 413');
is(ask('/short/', body(17_000_000, 'small'), 'more than the limit'), 'B4',
   'more than the limit: served');

# an error_page for a body that could not be read, also if a body is read early

for my $bad ("zz\r\n", "1000\r\n" . 'x' x 4096 . "\r\n0\r\n\r\n") {
    for my $how ('at once', 'later') {
        my $s = $t->connect() or die "connect: $!";
        my $head = "POST /page/ HTTP/1.1\r\nHost: localhost\r\n"
                   . "Content-Type: application/json\r\n"
                   . "Transfer-Encoding: chunked\r\n\r\n";

        syswrite $s, $how eq 'later' ? "${head}1\r\n{\r\n" : "$head$bad";

        if ($how eq 'later') {
            sleep 0.05;
            syswrite $s, $bad;
        }

        ok($t->read_until($s, qr{^HTTP/1\.1 (?:200|4\d\d) }),
           "an invalid body, $how: answered");
        close $s;
    }
}

# two requests over one connection

{
    my $s = $t->connect();
    my @to;

    for my $model (qw(small large small)) {
        $t->start('POST /file/', body(5000, $model), socket => $s);
        push @to, $t->from($t->finish($s));
    }

    like("@to", qr/^B[01] B[23] B[01]$/, 'over a kept connection');
}

# HTTP/2

SKIP: {
    skip 'no HTTP/2 here', 1
        unless $t->{vars}{HTTP2} && `curl --help all 2>&1` =~ /prior-knowledge/;

    my $h2 = sub {
        my ($uri, $body, @args) = @_;
        my $file = "$t->{dir}/h2.body";

        Kvroute::write_file($file, $body);

        open my $fh, '-|', 'curl', '-s', '--http2-prior-knowledge',
            '-m', 30, '-w', ' %{http_version} %{http_code}',
            '-H', 'Content-Type: application/json', '-H', 'Expect:', @args,
            '--data-binary', "\@$file",
            "http://127.0.0.1:$t->{vars}{H2}$uri" or die;

        my ($name, $md5, $len, $version, $status) = split / /, scalar <$fh>;

        is($md5, md5_hex($body), "HTTP/2 $uri: the body is untouched");
        is("$version $status", '2 200', "HTTP/2 $uri: served by HTTP/2");

        return $name;
    };

    for my $uri ('/', '/file/', '/only/', '/unbuffered/') {
        for my $size (10, 5000, 300000) {
            like($h2->($uri, body($size, 'small')), qr/^B[01]$/,
                 "HTTP/2 $uri $size: a model");
            like($h2->($uri, body($size, 'large')), qr/^B[23]$/,
                 "HTTP/2 $uri $size: another");
        }

        # without a length the body comes in frames only

        like($h2->($uri, body(70000, 'large'), '-H', 'Content-Length:'),
             qr/^B[23]$/, "HTTP/2 $uri: without a length");
    }

    my $body = body(20000, 'large');
    my $home = $h2->('/', $body);

    is($h2->('/?n=h2', $body), $home, 'HTTP/2: stays');
    is($t->receipt('h2')->{reason}, 'affinity', 'HTTP/2: affinity');
    is(ask('/', $body, 'HTTP/1.1'), $home, 'HTTP/1.1: to the same server');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
