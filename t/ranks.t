#!/usr/bin/perl

# kvroute_ranks: data-parallel ranks behind one address are separate targets,
# each with its own cache.

use FindBin;
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# servers that answer with the headers they got, and an address without a server

for my $name (qw(B0 B1)) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data)))
        {
            my ($do) = $head =~ /^X-$name: (\w+)\r?$/mi;
            my ($rank) = $head =~ /^X-Data-Parallel-Rank: (.*?)\r?$/mi;

            if (($do // '') eq 'wait') {
                Kvroute::write_file("$t->{dir}/go.came", '');
                select(undef, undef, undef, 0.005) while !-e "$t->{dir}/go";
            }

            return if ($do // '') eq 'close';

            my $body = "$name " . ($rank // 'none');

            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: "
                         . length($body) . "\r\n\r\n$body");
        }
    });
}

# a server that records heads of requests

$t->serve('R', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {
        Kvroute::write_file("$t->{dir}/head", $head);
        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
});

# a sick engine: it reports as many ranks as a file says, or with "4+2" two ranks
# from rank 4 on, or with two numbers each in turn

$t->serve('S', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {
        my $body = 'ok';

        if ($head =~ m{^GET }) {
            my @n = split ' ', Kvroute::slurp("$t->{dir}/sick");
            my $asked = -s "$t->{dir}/asked" // 0;

            open my $f, '>>', "$t->{dir}/asked";
            print $f '.';
            close $f;

            my ($from, $ranks) = $n[$asked % @n] =~ /^(?:(\d+)\+)?(\d+)$/;

            $from //= 0;
            $body = join '', map {
                "vllm:num_requests_running{engine=\"$_\",model_name=\"m\"} 0\n"
            } $from .. $from + $ranks - 1;
        }

        syswrite($c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: "
                     . length($body) . "\r\n\r\n$body");
        return;
    }
});

Kvroute::write_file("$t->{dir}/sick", '1');

my $dead = IO::Socket::UNIX->new(Local => "$t->{dir}/dead.sock",
                                 Type => IO::Socket::SOCK_STREAM());

# engines: two with ranks, two of the same without ranks in nginx, and sixteen
# single ones

my @args = ('--speed', 200, '--num-gpu-blocks-override', 4096);
my @blind = $t->engines(2, @args, '--data-parallel', 8);
my @alone = $t->engines(16, @args);
my @dp;

for my $i (0, 1) {
    my $port = $t->port();

    $t->start_engine($port, 1, @args, '--data-parallel', 8);
    $t->{vars}{"D$i"} = $port;
    push @dp, $port;
}


$t->{vars}{ALONE} = join "\n", map { "server 127.0.0.1:$_ max_fails=0;" } @alone;

$t->{vars}{RANKS} = 4;
$t->{vars}{MANY} = 20;

$t->upstream('told', 'kvroute_ranks %%RANKS%%;', 'B0 B1 max_fails=0');
$t->upstream('crowd', 'kvroute kv_cache zone=c;', 'kvroute_ranks 4;',
             'B0 B1 max_fails=0');
$t->upstream('first', 'kvroute kv_cache zone=f;', 'kvroute_ranks %%MANY%%;',
             'B0 max_fails=0',
             'server unix:%%DIR%%/dead.sock max_fails=0 backup;');
$t->upstream('next', 'kvroute kv_cache zone=f;', 'B1 R max_fails=0');
$t->upstream('sick', 'kvroute kv_cache zone=s;', 'kvroute_ranks auto;',
             'kvroute_probe interval=50ms;', 'S max_fails=0');
$t->upstream('written', 'kvroute_ranks 4;', 'R max_fails=0');
$t->upstream('dying', 'kvroute_ranks 4;',
             'server unix:%%DIR%%/dead.sock max_fails=0;',
             'B1 max_fails=0 backup');
$t->upstream('gone', 'kvroute_ranks 4;',
             'server unix:%%DIR%%/dead.sock max_fails=0;');
$t->upstream('sticky', 'kvroute sticky key=$http_x_session zone=z;',
             'kvroute_ranks 4;', 'B0 B1 max_fails=0');
$t->upstream('turns', 'kvroute round_robin zone=z;', 'kvroute_ranks 4;',
             'B0 B1 max_fails=0');
$t->upstream('twice', 'kvroute round_robin zone=z;', 'kvroute_ranks 2;',
             'B0 B0 B1 max_fails=0');
$t->upstream('queued', 'kvroute_ranks 4;', 'kvroute_queue max=10;',
             'B0 B1 max_fails=0 max_conns=1');
$t->upstream('ranks', 'kvroute kv_cache zone=a;', 'kvroute_ranks auto;',
             'kvroute_probe interval=100ms;', 'D0 D1 max_fails=0');
$t->upstream('blind', 'kvroute kv_cache zone=a;',
             'kvroute_probe interval=100ms;', 'E0 E1 max_fails=0');
$t->upstream('alone', 'kvroute kv_cache zone=a;',
             'kvroute_probe interval=100ms;', '%%ALONE%%');

my $conf = <<'EOF';
    kvroute_zone zone=z:16m;
    kvroute_zone zone=a:16m;
    kvroute_zone zone=s:1m max_peers=8;
    kvroute_zone zone=c:1m max_peers=4;
    kvroute_zone zone=f:1m max_peers=16;

    log_format r '$uri $status $kvroute_peer $kvroute_rank '
                 '$kvroute_reason $kvroute_early $upstream_addr';
    access_log %%DIR%%/access.log r;

    proxy_set_header X-Data-Parallel-Rank $kvroute_rank;

    kvroute_pin $http_x_pin;

    location /ranks/ { proxy_pass http://ranks/; }
    location /blind/ { proxy_pass http://blind/; }
    location /alone/ { proxy_pass http://alone/; }
    location /crowd/ { proxy_pass http://crowd/; }
    location /first/ { proxy_pass http://first/; }
    location /next/ { proxy_pass http://next/; }
    location /sick/ { proxy_pass http://sick/; }
    location /told/ { proxy_pass http://told/; }
    location /written/ { proxy_pass http://written/; }
    location /dying/ { proxy_pass http://dying/; }
    location /gone/ { error_page 502 = @plain; proxy_pass http://gone/; }
    location @plain { proxy_pass http://127.0.0.1:%%B0%%; }
    location /unsaid/ {
        proxy_set_header X-Other header;
        proxy_pass http://told/;
    }
    location /sticky/ { proxy_pass http://sticky/; }
    location /turns/ { proxy_pass http://turns/; }
    location /twice/ { proxy_pass http://twice/; }
    location /queued/ { proxy_pass http://queued/; }
    location /again/ {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://told/;
    }
    location /mirrored/ { mirror /mirror; proxy_pass http://told/; }
    location /mirror { internal; proxy_pass http://told/v1/completions; }
    location /api/ { kvroute_api write=on; }
EOF

$t->conf($conf);
$t->run();

my $n = 0;

sub ask {
    my ($where, %headers) = @_;

    my $r = $t->post("/$where/v1/chat/completions", chat(text(4000, ++$n)),
                     headers => \%headers);

    return split ' ', $r->{body};
}

sub rows {
    my ($upstream, $port) = @_;

    return grep { !$port || $_->{name} =~ /:$port(?:#|$)/ }
           @{$t->status()->{upstreams}{$upstream}{peers}};
}

my ($b0, $b1) = map { "127.0.0.1:$t->{vars}{$_}" } qw(B0 B1);


# --- the headers that servers get

my %told;

for (1 .. 40) {
    my ($name, $rank) = ask('told');
    $told{"$name $rank"}++;
}

is_deeply([sort keys %told], [map { my $b = $_; map { "$b $_" } 0 .. 3 } qw(B0 B1)],
          'every rank of every server is chosen and named to it');

my $long = chat(text(20000, 999));
my @first = split ' ', $t->post('/told/v1/chat/completions', $long)->{body};

is_deeply([split ' ', $t->post('/told/v1/chat/completions', $long)->{body}],
          \@first, 'a repeated prompt goes to the same rank') for 1 .. 3;

my %row = map { $_->{name} => $_ } rows('told');

is_deeply([sort keys %row], [sort map { my $b = $_; map { "$b#$_" } 0 .. 3 } $b0, $b1],
          'each has a row');
is($row{"$b0#2"}{rank}, 2, 'the row has its rank');

my $sum = 0;
$sum += $_->{requests} for values %row;
is($sum, 44, 'requests are counted by rank');
is(scalar(grep { $_->{requests} == 0 } values %row), 0, 'each rank had requests');

my ($name, $rank) = ask('told', 'X-Data-Parallel-Rank' => 77);
like($rank, qr/^[0-3]$/, 'a client\'s rank is not passed on');

is_deeply([ask('told', 'X-Pin' => "$b1#3")], ['B1', 3], 'a rank can be pinned');
is_deeply([ask('told', 'X-Pin' => "$b1#0")], ['B1', 0], 'the first one, too');

my %pinned;
$pinned{join ' ', ask('told', 'X-Pin' => $b1)}++ for 1 .. 16;
is_deeply([sort keys %pinned], [map { "B1 $_" } 0 .. 3],
          'a pinned address may use any of its ranks');

is($t->get('/told/v1/models')->{body} =~ / none$/ ? 1 : 0, 1,
   'without a body the server chooses');

my @logged;

$t->post('/mirrored/v1/chat/completions', chat(text(4000, ++$n)));
ok(wait_for(sub { $t->access_log() =~ m{^/mirrored/}m }), 'mirrored');
ok($t->idle(), 'no request is left in the counters');

# vLLM Router names a rank by the same header; it also passes a client's header
# on, before it, and changes the body

my ($theirs, $again) = split /\n\n(?=POST)/,
    Kvroute::slurp("$FindBin::Bin/ranks/vllm-router-0.1.17.txt") =~ s/^#.*\n//mgr;

sub ranks_in { return $_[0] =~ /^(X-Data-Parallel-Rank: \d+)\r?$/mig }

my $body = '{"model":"emulated","messages":[{"role":"user","content":"hello"}],'
           . '"max_tokens":4}';

for my $mine (undef, 77) {
    my %h = defined $mine ? ('X-Data-Parallel-Rank' => $mine) : ();

    $t->post('/written/v1/chat/completions', $body, headers => \%h);

    my $head = Kvroute::slurp("$t->{dir}/head");
    my @ranks = ranks_in($head);
    my @their = ranks_in(defined $mine ? $again : $theirs);

    is(scalar @ranks, 1, 'a single header, whatever the client sends');
    is(scalar @their, defined $mine ? 2 : 1, 'their headers');
    is(lc $ranks[-1] =~ s/\d+$//r, $their[-1] =~ s/\d+$//r, 'of the same form');
    like($head, qr/^Content-Length: @{[length $body]}\r$/mi, 'the body is unchanged');
}

# if a zone has too few slots, servers get theirs before ranks do

is(join(' ', sort map { $_->{name} =~ s/:\d+//r =~ s/.*1#/#/r }
             grep { defined $_->{id} } rows('crowd')), '#0 #0 #1 #2', 'servers first');
ok((ask('crowd'))[0] =~ /^B/, 'and all are served');

# the same with backup servers, and those of the next upstream

sub numbered { return scalar grep { defined $_->{id} } map { rows($_) } @_ }

is(join(' ', map { defined $_->{id} ? 1 : 0 } grep { $_->{name} !~ /#[1-9]/ }
             map { rows($_) } qw(first next)), '1 1 1 1', 'servers of all upstreams');
is(numbered(qw(first next)), 16, 'ranks have the remaining slots');

my %session;
$session{join ' ', ask('sticky', 'X-Session' => 'one')}++ for 1 .. 6;
is(scalar keys %session, 1, 'a session stays at its rank');

# new sessions rotate, and so do requests

sub turns {
    my ($where, $n) = @_;
    my %taken;

    $taken{join ' ', ask($where, 'X-Session' => "$where$_")}++ for 1 .. $n;

    return \%taken;
}

is_deeply(turns('sticky', 8), { map { ("B0 $_" => 1, "B1 $_" => 1) } 0 .. 3 },
          'each of eight sessions gets its own rank');
is_deeply(turns('turns', 16), { map { ("B0 $_" => 2, "B1 $_" => 2) } 0 .. 3 },
          'turns rotate over all ranks');
is_deeply(turns('twice', 12), { map { ("B0 $_" => 4, "B1 $_" => 2) } 0, 1 },
          'the ranks of a server listed twice take two turns');

is_deeply([map { scalar grep { /^B[01]$/ } ask('queued') } 1 .. 4], [1, 1, 1, 1],
          'with a queue');
ok($t->idle(), 'no reservation is left');


# --- retries keep the rank of the header

my @tries = map { [ask('again', 'X-Pin' => "$b0#$_", 'X-B0' => 'close')] } 0 .. 3;

is_deeply(\@tries, [map { ['B1', $_] } 0 .. 3], 'the next server, the same rank');

wait_for(sub { (() = $t->access_log() =~ m{^/again/}mg) == 4 });
@logged = map { (split)[3, 4, 5] } grep { m{^/again/} } split /\n/, $t->access_log();
is_deeply(\@logged, [map { ($_, 'retry', 'moved') } 0 .. 3], 'the log has this');

($name) = ask('dying');
is($name, 'B1', 'a backup server gets the same rank');

is_deeply([ask('gone')], ['B0', 'none'],
          'a redirect does not carry the rank to another server');

# a location with its own headers does not inherit ours: the engine's choice of
# a rank is counted as such, and not learned

my $unsaid = chat(text(9000, 815));

is_deeply([map { (split ' ', $t->post('/unsaid/v1/chat/completions', $unsaid)
                             ->{body})[1] } 1 .. 4],
          [('none') x 4], 'no header');
ok(wait_for(sub { 4 == (() = $t->access_log()
                        =~ m{^/unsaid/\S+ 200 \S+ - (?!affinity)\S+ - }mg) }),
   'the rank is unknown, and nothing is learned');
my $said = () = Kvroute::slurp("$t->{dir}/error.log")
          =~ /"told" do not receive the rank.*write/g;
ok($said >= 1 && $said <= $t->{workers}, 'each worker logs the remedy once');


# --- properties of the address

my $r = $t->post("/api/peers/drain?peer=$b0", '');
$r = $t->post("/api/drain?peer=$b0", '') if $r->{status} != 200;
is($r->{status}, 200, 'a server is drained') or diag $r->{body};

is(scalar(grep { $_->{name} =~ /^\Q$b0/ && $_->{state} =~ /^drain/ } rows('told')),
   4, 'with all its ranks');

my %drained;
$drained{(ask('told'))[0]}++ for 1 .. 8;
is_deeply(\%drained, { B1 => 8 }, 'none of them gets new requests');

$t->post("/api/undrain?peer=$b0%231", '');
is(scalar(grep { $_->{state} eq 'up' } rows('told')), 8,
   'any of its names puts it back');


# --- ranks by the engines' metrics

ok(wait_for(sub { rows('ranks') == 16 }), 'metrics report the number of ranks');
ok(wait_for(sub { !grep { $_->{capacity_source} ne 'reported' } rows('ranks') }),
   'and the capacity of each');

# agents: each turn contains all turns before

my $reply = 'ok ' x 20;

sub agents {
    my ($where, $agents, $turns, $seed) = @_;
    my %sent;
    my @failed;

    for my $turn (1 .. $turns) {
        for my $a (0 .. $agents - 1) {
            my $m = $sent{$a} ||= [ { role => 'system',
                                         content => text(6000, 7 + ($seed || 0)) } ];

            push @$m, { role => 'user', content => text(1500, ($seed || 0) + 1000 * $a + $turn) };

            my $r = $t->post("/$where/v1/chat/completions",
                             JSON::PP::encode_json({ model => 'emulated',
                                                     max_tokens => 8,
                                                     messages => $m }));

            push @failed, $r->{status} if $r->{status} != 200;
            push @$m, { role => 'assistant', content => $reply };
        }
    }

    return @failed;
}

sub share {
    my @ports = @_;
    my ($cached, $prompt) = (0, 0);

    for (@ports) {
        my ($c) = $t->control($_);
        $c = $c->{replicas}[0] if $c->{replicas};
        $cached += $c->{cached_tokens};
        $prompt += $c->{prompt_tokens};
    }

    return 100 * $cached / ($prompt || 1);
}

my @failed = map { agents($_, 20, 5) } qw(ranks blind alone);

is_deeply(\@failed, [], 'all requests are answered');

my ($with, $without, $each) = (share(@dp), share(@blind), share(@alone));

diag(sprintf('cached: ranks %.1f %%, not told apart %.1f %%, 16 servers %.1f %%',
             $with, $without, $each));

cmp_ok($with, '>', $each - 1, 'ranks find as much as single servers');
cmp_ok($without, '<', $each - 10, 'without ranks in nginx less is found');


# --- a rank loses its cache

ok($t->control($dp[0], { reset_rank => $_ }), "rank $_ is emptied") for 0 .. 7;
is_deeply([agents('ranks', 10, 2)], [], 'no request fails');


# --- a server ends, and returns with other ranks

$t->kill_engine($dp[0]);

is_deeply([agents('ranks', 5, 2)], [], 'one server away: no request fails');
ok(wait_for(sub { rows('ranks', $dp[0]) == 1 }), 'its ranks are removed');

$t->start_engine($dp[0], 1, @args, '--data-parallel', 4);
is_deeply([agents('ranks', 5, 2)], [], 'back with four: no request fails');

ok(wait_for(sub { rows('ranks', $dp[0]) == 4 }), 'it has four ranks now');
is(scalar(rows('ranks', $dp[1])), 8, 'the other one still has eight');

# only after nginx's own fail_timeout

my ($failed, $k) = (0, 0);

ok(wait_for(sub {
    $failed += agents('ranks', 3, 2, 1e5 * ++$k);
    return grep { $_->{requests} } rows('ranks', $dp[0]);
}), 'the new ranks get requests');
is($failed, 0, 'no request fails');

$t->kill_engine($dp[0]);
ok(wait_for(sub { rows('ranks', $dp[0]) == 1 }), 'it ends again');
$t->start_engine($dp[0], 1, @args);
ok(wait_for(sub { rows('ranks', $dp[0]) == 1
                  && (rows('ranks', $dp[0]))[0]{name} !~ /#/ }),
   'an engine of one rank is a server like any other');
is_deeply([agents('ranks', 10, 2)], [], 'no request fails');

ok($t->idle(), 'the counters are back at zero');


# --- an engine that reports ten thousand ranks, and other numbers each time

sub sick { return map { (ask('sick'))[0] } 1 .. shift }

Kvroute::write_file("$t->{dir}/sick", 10_000);

ok(wait_for(sub { rows('sick') > 1 }), 'ten thousand ranks are reported');
cmp_ok(scalar(rows('sick')), '<=', 64, '64 are used');
is(scalar(grep { defined $_->{id} } rows('sick')), 8,
   'as many have slots as the zone has');
is_deeply([sick(8)], [('ok') x 8], 'requests are served');

# a node of several (--data-parallel-hybrid-lb) reports its ranks by their global
# numbers, and gets requests with its own

for my $case ([ '4+2', 2 ], [ '70+4', 4 ], [ '3+1', 1 ]) {
    my ($ranks, $many) = @$case;

    Kvroute::write_file("$t->{dir}/sick", $ranks);
    ok(wait_for(sub { rows('sick') == $many }), "$ranks: $many here");
    is(join(' ', map { $_->{name} =~ s/^[^#]*//r } rows('sick')),
       $many > 1 ? join(' ', map { "#$_" } 0 .. $many - 1) : '', "$ranks: from 0 on");
}

# a reload with other ranks

my $held = $t->start('POST /told/v1/chat/completions', chat(text(4000, ++$n)),
                     headers => { 'X-Pin' => "$b0#3", 'X-B0' => 'wait' });

ok(wait_for(sub { -e "$t->{dir}/go.came" }), 'a request is at the last rank');

$t->{vars}{RANKS} = 2;
$t->conf($conf);
$t->reload();

is(scalar(rows('told')), 4, 'two ranks each after a reload');

my %two;
$two{join ' ', ask('told')}++ for 1 .. 12;
is_deeply([sort keys %two], ['B0 0', 'B0 1', 'B1 0', 'B1 1'], 'only these get requests');

$t->step('go');
is($t->finish($held)->{status}, 200, 'a request at a removed rank ends well');
close $held;

# fewer ranks, and more again: a target keeps its slot and its cached prompts

sub known {
    return { map { $_->{name} => $_->{id} } grep { defined $_->{id} }
             map { rows($_) } qw(first next) };
}

$t->{vars}{MANY} = 4;
$t->conf($conf);
$t->reload();

my %pin = ('next' => $b1, first => "$b0#3");

for my $where (sort keys %pin) {
    $t->post("/$where/v1/chat/completions", chat(text(9000, 4711)),
             headers => { 'X-Pin' => $pin{$where} });
}

my $four = known();

for my $many (20, 4) {
    $t->{vars}{MANY} = $many;
    $t->conf($conf);
    $t->reload();

    my $now = known();

    is_deeply({ map { $_ => $now->{$_} } keys %$four }, $four,
              "$many ranks: a target keeps its slot");

    is_deeply([map { $t->post("/$_/v1/chat/completions", chat(text(9000, 4711)))
                     ->{body} =~ /^(B\d)(?: ([1-9]))?/; $1 . ($2 // '') }
               sort keys %pin], ['B03', 'B1'], "$many ranks: and its cached prompts");
}

ok(wait_for(sub { 4 == (() = $t->access_log()
                        =~ m{^/(?:first|next)/\S+ 200 \S+ \S+ affinity}mg) }),
   'and the reason');

Kvroute::write_file("$t->{dir}/sick", '4 2 7 0');

my $asked = -s "$t->{dir}/asked";
my @flipped = map { (ask('sick'))[0] } 1 .. 60;

ok(wait_for(sub { -s "$t->{dir}/asked" > $asked + 8 }), 'ranks come and go');
is_deeply([grep { $_ ne 'ok' } @flipped, sick(8)], [], 'no request fails');
ok($t->idle(), 'no request is left in the counters');

$t->done();
