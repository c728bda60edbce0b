#!/usr/bin/perl

# A zone with the maximum number of servers, and more: servers without a slot
# are chosen by load, and get a slot when another server is removed.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# one backend with all addresses, and two more

my $everywhere = $t->backend('M', addr => '0.0.0.0');

$t->backend($_) for qw(B0 B1 W);

my ($b0, $b1) = map { "127.0.0.1:$t->{vars}{$_}" } qw(B0 B1);

sub address { return join '.', 127, 1, 1 + int($_[0] / 250), 1 + $_[0] % 250 }

# this many servers besides the two, which can have ranks

sub conf {
    my ($n, $ranks) = @_;

    $t->{vars}{MANY} = join "\n        ",
        map { 'server ' . address($_) . ":$everywhere max_fails=0;" } 0 .. $n - 1;
    $t->{vars}{RANKS} = $ranks ? "kvroute_ranks $ranks;" : '';

    $t->upstream('late', '%%RANKS%%', 'B0 B1 max_fails=0');

    $t->conf(<<'EOC');
    kvroute_zone zone=z:16m max_peers=512;
    kvroute_zone zone=few:1m max_peers=2;
    log_format r '$uri $status $kvroute_peer $kvroute_reason';
    access_log %%DIR%%/access.log r;

    upstream many {
        zone many 2m;
        kvroute kv_cache zone=z;
        %%MANY%%
    }

    upstream placed {
        zone placed 64k;
        kvroute kv_cache zone=few;
        kvroute_queue max=10;
        server 127.0.0.1:%%B0%% max_fails=0;
        server 127.0.0.1:%%B1%% max_fails=0;
    }
    upstream waits {
        zone waits 64k;
        kvroute kv_cache zone=few;
        kvroute_queue max=10;
        server 127.0.0.1:%%W%% max_fails=0 max_conns=1;
    }

    proxy_set_header X-Data-Parallel-Rank $kvroute_rank;

    kvroute_pin $http_x_pin;
    location /placed/ { proxy_pass http://placed; }
    location /waits/ { proxy_pass http://waits; }
    location /many/ { proxy_pass http://many; }
    location /late/ { proxy_pass http://late; }
EOC
}

my $n = 0;

sub ask {
    my ($where, $body, %headers) = @_;

    return $t->post("/$where/v1/chat/completions", $body // chat(text(3000, ++$n)),
                    headers => \%headers);
}

sub late { return ask('late', @_)->{headers}{'x-backend'} // '' }

sub rows { return @{$t->status()->{upstreams}{$_[0]}{peers}} }

sub ids { return grep { defined } map { $_->{id} } map { rows($_) } @_ }

# sends this many at once: counts the ranks in their headers

sub at_once {
    my ($many, $file) = @_;

    my @s = map {
        $t->start('POST /late/v1/chat/completions', chat(text(3000, ++$n)),
                  headers => { map { ("X-B$_" => "wait $file") } 0, 1 })
    } 1 .. $many;

    ok(wait_for(sub { ($t->load())[2] == $many }), "$file: $many at once");
    $t->step($file);

    my %got;
    $got{$t->answered_by($t->finish($_))}++ for @s;
    return %got;
}

# Each worker checks on its own, and any can answer.  The few rows of interest
# are found among hundreds without parsing all as JSON.

sub everywhere {
    my ($many) = @_;

    return wait_for(sub {
        return !grep {
            late();
            my ($rows) = $t->get('/kvroute/json')->{body} =~ /"late":\s*\{.*?"peers":\s*\[(.*?\}\s*\])/s;

            $many != (() = ($rows // '') =~ /"id":\s*\d/g);
        } 1 .. 8 * $t->{workers};
    });
}

sub warned {
    my ($what, $of) = @_;

    return $t->log() =~ /"z" has no slot for $what of upstream "$of", which are chosen by load only: all slots are in use \(max_peers/;
}


# --- the 513th

conf(511);
$t->run();

my %id;
$id{$_}++ for ids('many', 'late');

is(scalar keys %id, 512, 'of 513 servers 512 have a slot');
is(scalar(grep { $_ > 1 } values %id), 0, 'no two have the same slot');
is($t->status()->{zones}{z}{peers}, 512, 'the zone is full');
ok(warned('1 servers', 'late'), 'a warning names the upstream, and the remedy');
is(scalar(rows('late')), 2, 'the server still has a row in the status');
is_deeply([map { $_->{id} ? 1 : 0 } rows('late')], [1, 0], 'without an id');

my %got = at_once(16, 'few');
cmp_ok($got{"$_ none"} // 0, '>=', 2, "by load $_ gets its share") for qw(B0 B1);

# cached prompts of the servers with the highest slots are known too

my $gone = address(510) . ":$everywhere";
my ($last) = sort { $b->{id} <=> $a->{id} } grep { $_->{name} ne $gone } rows('many');
my $prompt = chat(text(9000, 4711));

cmp_ok($last->{id}, '>=', 509, 'one of the highest slots');
ask('many', $prompt, 'X-Pin' => $last->{name});
is(ask('many', $prompt)->{status}, 200, 'a prompt is repeated');

my $again = qr{^/many/\S+ 200 \Q$last->{name}\E affinity$}m;

ok(wait_for(sub { $t->access_log() =~ $again }), 'to the server with that slot');
ok($t->idle(), 'no request is left in the counters');


# --- an upstream without a slot in the zone is not counted as another one

is(ask('placed')->{status}, 200, 'the first upstream of a zone');

my @waits = map {
    $t->start('POST /waits/v1/chat/completions', chat(text(3000, ++$n)),
              headers => { 'X-W' => 'wait waits' })
} 1 .. 2;

ok(wait_for(sub { ($t->status()->{upstreams}{waits}{queue}{size} // 0) == 1 }),
   'one request waits');
$t->step('waits');
is($t->finish($_)->{status}, 200, 'and is served') for @waits;
is($t->status()->{upstreams}{placed}{queue_time}{count}, 0,
   'no request has waited at the first upstream');


# --- a server is removed: its slot goes to a server without one

conf(510);
$t->reload();

ok(everywhere(2), 'a free slot is assigned');
is($t->status()->{zones}{z}{peers}, 512, 'the zone is full again');

my $b1_knows = chat(text(9000, 4712));

late($b1_knows, 'X-Pin' => $b1);
is(late($b1_knows), 'B1', 'its cached prompts are known from then on') for 1 .. 3;

is(ask('many', $prompt)->{status}, 200, 'the prompt from before the reload');

ok(wait_for(sub { 2 == (() = $t->access_log() =~ /$again/g) }),
   'goes to the same server');


# --- ranks without a slot

conf(510, 4);
$t->reload();

is_deeply([sort grep { /^127/ } map { $_->{name} } grep { defined $_->{id} } rows('late')],
          [sort "$b0#0", "$b1#0"],
          'both servers keep their slots, their ranks have none');
is(scalar(rows('late')), 8, 'each has a row');
ok(warned('6 servers or ranks', 'late'), 'a warning');

# targets without a slot are used: the engine gets no rank, and chooses one

%got = at_once(16, 'none');
cmp_ok($got{"$_ none"} // 0, '>=', 4, "ranks of $_ without a slot get their share")
    for qw(B0 B1);
is(late($b1_knows), 'B1', 'and it keeps its cached prompts');

# now all ranks of one server have slots, and of the other one the first rank

conf(507, 4);
$t->reload();

ok(everywhere(5), 'slots for half of the ranks');

%got = at_once(20, 'half');
is(scalar(grep { /^(?:B0 [0-3]|B1 0|B1 none)$/ } keys %got), scalar keys %got,
   'no header names a rank without a slot');
is(scalar(grep { $got{"B0 $_"} } 1 .. 3), 3, 'headers name the others');
cmp_ok($got{'B1 none'} // 0, '>=', 2, 'the ranks without slots get their share');
ok($t->idle(), 'no request is left in the counters');

conf(504, 4);
$t->reload();

ok(everywhere(8), 'all ranks have slots');

%got = at_once(24, 'ranks');
is(scalar(grep { /^B[01] [0-3]$/ } keys %got), 8, 'and each is named');
ok($t->idle(), 'no request is left in the counters');

$t->done();
