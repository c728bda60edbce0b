#!/usr/bin/perl

# Time to first token of a stream, and the total time of an answer in one piece:
# counted separately, in all formats.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->engines(1, '--hardware', 'none', '--model', 'm');
$t->backend('B0');

# streams are recognized by their type, whatever they contain

for my $type ('application/x-ndjson', 'text/event-stream; charset=utf-8',
              'application/json', 'text/plain', 'text/event-stre')
{
    my $name = uc($type =~ s/\W//gr);

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';
        Kvroute::Servers::backend_read($c, \$data);
        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: $type\r\n"
                     . "Connection: close\r\n\r\ndata: {\"a\":1}\n\n");
    });
}

my @typed = qw(APPLICATIONXNDJSON TEXTEVENTSTREAMCHARSETUTF8 APPLICATIONJSON
               TEXTPLAIN TEXTEVENTSTRE);

my $upstreams = join '', map { <<"EOC" } @typed;
    upstream $_ {
        zone $_ 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%$_%%;
    }
EOC

my $locations = join "\n", map { "location /$_/ { proxy_pass http://$_; }" }
                               @typed;

$t->upstream('u', 'E0');
$t->upstream('b', 'B0');

$t->conf(<<"EOC")->run();
    $upstreams

    proxy_buffering off;
    location /v1/ { proxy_pass http://u; }
    location /b/ { proxy_pass http://b; }
    $locations
EOC

# how many streams and whole answers an upstream has had, in all formats

sub counted {
    my ($upstream, $streams, $whole, $name) = @_;
    my $all = $streams + $whole;

    ok($t->idle(), 'idle');

    my $u = $t->status()->{upstreams}{$upstream};
    my ($p) = @{$u->{peers}};
    my %m;

    for (split /\n/, $t->get('/kvroute/metrics')->{body}) {
        $m{$1} = $2 if /^(\w+(?:\{.*\})?) (\S+)$/;
    }

    my $of = qq(upstream="$upstream");
    my $peer = qq($of,peer="$p->{name}");

    for my $c ([ 'true', $streams ], [ 'false', $whole ]) {
        my ($stream, $n) = @$c;
        my $l = qq(stream="$stream");

        is($m{"kvroute_ttft_seconds_count{$of,$l}"}, $n, "$name: $l");
        is($m{"kvroute_ttft_seconds_bucket{$of,$l,le=\"+Inf\"}"}, $n,
           'buckets in the metrics');
        is($m{"kvroute_peer_ttft_seconds_count{$peer,$l}"}, $n,
           'count of the server');
    }

    is($u->{ttft}{count}, $all, "$name: all of them in the JSON");
    is($u->{ttft}{buckets}{'+Inf'}, $all, 'buckets of all');
    is($u->{ttft_stream}{count}, $streams, 'streams');
    is($u->{ttft_stream}{buckets}{'+Inf'}, $streams, 'buckets of streams');
    is($u->{ttft_whole}{count}, $whole, 'wholes');
    is($p->{ttft_count}, $all, 'count of the server, all');
    is($p->{ttft_stream_count}, $streams, 'streams');
    is(exists $p->{ttft_stream} ? 1 : 0, $streams ? 1 : 0,
       'a mean if the count is not zero');
    ok(abs($u->{ttft}{sum} - $u->{ttft_stream}{sum} - $u->{ttft_whole}{sum})
       < 1e-6, 'sums add up');
    ok($p->{ttft_sum} >= $p->{ttft_stream_sum}, 'sums of the server add up');

    my @receipts = grep { $_->{upstream} eq $upstream && defined $_->{ttft} }
                   @{$t->status()->{receipts}};
    is((grep { $_->{stream} } @receipts), $streams, 'receipts say which');
    is((grep { !$_->{stream} } @receipts), $whole, 'receipts of whole answers');
}

counted('u', 0, 0, 'no answers');

sub engine {
    is($t->post('/v1/chat/completions',
                chat(text(3_000, $_[0]), stream => $_[1] ? \1 : \0))->{status},
       200, 'served');
}

engine($_, 1) for 1 .. 3;
counted('u', 3, 0, 'streams');

engine($_, 0) for 1 .. 2;
counted('u', 3, 2, 'streams and whole answers');

# a compressed answer is not parsed, but its first byte counts

$t->step("step$_") for 1 .. 2;

for my $how ('stream 2', 'packed 2') {
    is($t->post('/b/', chat("$how"), headers => {
        'X-B0' => $how, 'X-Step' => 'step' })->{status}, 200, $how);
}

$t->post('/b/', chat('whole'));
$t->post('/b/', chat('failed'), headers => { 'X-B0' => 'status 500' });
counted('b', 2, 1, 'compressed');

for my $type (@typed) {
    is($t->post("/$type/", chat('x'))->{status}, 200, $type);

    my $stream = $type =~ /NDJSON|EVENTSTREAM/ ? 1 : 0;
    counted($type, $stream, 1 - $stream, $type);
}

$t->done();
