#!/usr/bin/perl

# connector=pull: a server fetches the part of a prompt that another server has
# cached.

use JSON::PP;

use lib 't/lib';
use Kvroute;
use Kvroute::Recorder;

my $t = Kvroute->new();

recorder($t, $_, '{"text":"S"}') for qw(S0 S1 S2);

$t->upstreams(engines => ['S0', 'S1', 'S2', 'keepalive 4;']);

$t->upstream('ranked', 'kvroute kv_cache zone=r;', 'kvroute_ranks 2;', qw(S0 S1));

$t->conf(<<'EOF')->run();
    log_format kv '$http_x_n $status $kvroute_disaggregated [$kvroute_leg1_peer] '
                  '$kvroute_reason';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;
    kvroute_zone zone=r:4m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    client_body_buffer_size 1m;

    kvroute_prefill engines connector=pull transfer=0.1;
    kvroute_pin $http_x_pin;

    location / {
        proxy_next_upstream error timeout http_500 non_idempotent;
        proxy_pass http://engines;
    }
    location /file/ {
        client_body_in_file_only clean;
        proxy_pass http://engines/;
    }
    location /port/ {
        kvroute_prefill engines connector=pull:7001;
        proxy_pass http://engines/;
    }
    location /ranked/ {
        proxy_set_header X-Data-Parallel-Rank $kvroute_rank;
        kvroute_prefill ranked connector=pull transfer=0.1;
        proxy_pass http://ranked/;
    }
    location /off/ { kvroute_prefill off; proxy_pass http://engines/; }
EOF

my %at = map { $_ => "127.0.0.1:$t->{vars}{$_}" } qw(S0 S1 S2);
$at{'S1#0'} = "$at{S1}#0";
my $asked = 0;

sub body {
    my ($seed, $more) = @_;

    return '{"model":"m","messages":[{"role":"user","content":"'
           . text(40000, $seed) . '"}],"max_tokens":7' . ($more // '') . '}';
}

sub begin {
    my ($pin, $body, %arg) = @_;

    unlink "$t->{dir}/S.sent";

    return $t->start('POST ' . ($arg{where} // '') . '/v1/chat/completions',
                     $body, headers => { 'X-N' => ++$asked, 'X-Pin' => $at{$pin},
                                         %{$arg{do} // {}} });
}

# returns the requests to servers, and checks the log line

sub ask {
    my ($name, $line, @arg) = @_;

    my $r = $t->finish(begin(@arg));

    is($r->{status}, 200, $name);
    like($t->logged($asked), qr/^200 $line/, 'the log line');

    return grep { !$_->{gone} } sent($t, 'S');
}

# the body for a server that fetches

sub pulled {
    my ($body, $from, $port) = @_;

    my $end = quotemeta ',"kv_transfer_params":{"remote_kv_source":'
              . '{"kv_request_id":"kvroute-';

    return qr/\A\Q@{[ substr $body, 0, -1 ]}\E$end(\d+)","remote_host":"127.0.0.1",
              "remote_port":$port\}\}\}\z/x;
}


my ($s) = ask('nobody has it', 'short \[-?\]', 'S0', body(1));
is($s->{body}, body(1), 'the client\'s body');

($s) = ask('another server', "yes \\[\Q$at{S0}\E\\]", 'S1', body(1));
is($s->{name}, 'S1', 'the pinned server');
like($s->{body}, pulled(body(1), 'S0', 5710), 'its source');
my ($id) = $s->{body} =~ /kvroute-(\d+)/;
is(ref(decode_json($s->{body})), 'HASH', 'JSON');

($s) = ask('it has it now', 'cached ', 'S1', body(1));
is($s->{body}, body(1), 'the client\'s body');

($s) = ask('a third one', 'yes ', 'S2', body(1));
like($s->{body}, qr/kvroute-(?!$id")/, 'another id');

# members that a client may not send

($s) = ask('a client that names a source', 'cached ', 'S2',
           body(1, ',"kv_transfer_params":{"remote_kv_source":{"remote_host":"x"}}'));
unlike($s->{body}, qr/remote/, 'is blanked');

# a body in a file; another port; a location without the directive

ask('a second prompt', 'short ', 'S0', body(2));
($s) = ask('in a file', 'yes ', 'S1', body(2), where => '/file');
like($s->{body}, pulled(body(2), 'S0', 5710), 'its source');

ask('a third prompt', 'short ', 'S0', body(3));
($s) = ask('another port', 'yes ', 'S1', body(3), where => '/port');
like($s->{body}, pulled(body(3), 'S0', 7001), 'its source');
($s) = ask('off', '- ', 'S2', body(3), where => '/off');
is($s->{body}, body(3), 'the client\'s body');

# each rank of a source has its own port

my %at_rank;

for my $n (10, 11) {
    ($s) = ask('a prompt at a rank', 'short ', 'S0', body($n), where => '/ranked');
    my ($rank) = $s->{head} =~ /^X-Data-Parallel-Rank: (\d)/mi;
    ok(!$at_rank{$rank}++, 'the other rank');
    ($s) = ask('at another server', 'yes ', 'S1#0', body($n), where => '/ranked');
    like($s->{body}, pulled(body($n), 'S0', 5710 + $rank), 'the port of the rank');
}

# a retry goes to another server, which can be the source itself

ask('a fourth prompt', 'short ', 'S0', body(4));

my @s = ask('the server fails', 'retried ', 'S1', body(4),
            do => { 'X-S1' => 'status 500' });
is($s[0]{name}, 'S1', 'the first one fetches');
like($s[0]{body}, pulled(body(4), 'S0', 5710), 'its source');
isnt($s[1]{name}, 'S1', 'another server');
is($s[1]{body} =~ s/ *\}\z/}/r, body(4), 'the second one does not fetch');
is(length $s[1]{body}, length $s[0]{body}, 'a body of the same length');

# a prompt that is being computed cannot be fetched

my $first = begin('S0', body(5), do => { 'X-S' => 'wait go plain' });
ok(wait_for(sub { $t->peer('engines', $t->{vars}{S0})->{active} == 1 }),
   'a prompt is being computed');
($s) = ask('its sibling', 'short ', 'S1', body(5));
is($s->{body}, body(5), 'the client\'s body');
$t->step('go');
is($t->finish($first)->{status}, 200, 'the first one is answered');

# a server that waits for a source that does not answer; the sources above have
# answered

unlike($t->log(), qr/no token came/, 'no warning so far');

ask('a sixth prompt', 'short ', 'S0', body(6));

my $c = begin('S1', body(6), do => { 'X-S' => 'hold' });
ok(wait_for(sub { grep { $_->{name} eq 'S1' } sent($t, 'S') }), 'the server waits');
close $c;

my $warning = "no token came from a server that was to fetch its cache from "
              . "$at{S0}, port 5710";
ok(wait_for(sub { index($t->log(), $warning) >= 0 }),
   'the warning');
ok($t->idle(), 'none in flight');

my $counted = $t->status()->{upstreams}{engines}{disaggregated};

is($counted->{yes}, 5, 'fetched') or diag(encode_json($counted));
is($counted->{retried}, 1, 'retried elsewhere');

$t->done();
