#!/usr/bin/perl

# A reload keeps all prefixes, unless the zone's size changes; a configuration
# that does not fit the zone is rejected, and the old one stays.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;

sub conf {
    my ($zone, $servers, $more) = @_;

    my $list = join "\n", map { "server 127.0.0.1:%%$_%%;" } @$servers;

    $t->conf(<<"EOF");
http {
%%TEMP%%
    kvroute_zone $zone;
    log_format kv '\$arg_n \$kvroute_peer \$kvroute_reason '
                  '\$kvroute_matched_bytes';
    access_log %%DIR%%/access.log kv;

    upstream u {
        zone u 64k;
        kvroute kv_cache zone=z;
        $list
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        location / {
            proxy_next_upstream error timeout non_idempotent;
            proxy_pass http://u;
        }
        location /kvroute/ { kvroute_status; }
    }
    @{[ $more || '' ]}
}
EOF
}

my @three = qw(B0 B1 B2);

conf('zone=z:2m', \@three);
$t->run();

my %body = map { $_ => chat(text(6000, $_)) } 1 .. 9;
my $n = 0;

sub ask {
    my ($which) = @_;
    my $id = 'q' . ++$n;
    my $r = $t->post("/?n=$id", $body{$which});
    my @f;

    wait_for(sub { @f = $t->access_log() =~ /^$id (\S+) (\S+) (\S+)$/m });

    return { home => $r->{headers}{'x-backend'}, reason => $f[1],
             matched => $f[2] };
}

my %home = map { $_ => ask($_)->{home} } 1 .. 9;

sub remembers {
    my ($name, $expect) = @_;
    my $kept = grep {
        my $a = ask($_);
        $a->{home} eq $home{$_} && $a->{matched} > 5000
    } 1 .. 9;

    is($kept, $expect, $name);
}

remembers('all prompts are known', 9);

# plain reload

$t->reload();
remembers('and after a reload', 9);

# servers removed, added, in another order

conf('zone=z:2m', [qw(B3 B2 B0)]);
$t->reload();
my %by;
$by{$home{$_}}++ for 1 .. 9;

{
    my $kept = grep { $home{$_} ne 'B1' && ask($_)->{home} eq $home{$_} } 1 .. 9;
    is($kept, 9 - $by{B1}, 'prompts of the remaining servers');
}

conf('zone=z:2m', \@three);
$t->reload();

{
    my @b1 = grep { $home{$_} eq 'B1' } 1 .. 9;
    my $id = $t->peer('u', $t->{vars}{B1})->{id};
    ok(defined $id, 'a server that came back');
    is($t->status()->{zones}{z}{peers}, 4, 'has its old slot');
}

# requests in flight while the configuration changes

{
    my @s = map { $t->start('POST /', $body{$_}, headers =>
                  { map { ("X-$_" => 'wait reload') } @three }) } 1 .. 6;
    wait_for(sub { ($t->load())[0] == 6 });
    $t->reload();
    is(($t->load())[0], 6, 'new workers count the old requests');
    $t->step('reload');
    is(scalar(grep { $t->finish($_)->{status} == 200 } @s), 6,
       'and are all served');
    ok($t->idle(), 'then no request is left');
}

# layouts that do not fit are rejected, and nothing changes

my $generation = $t->status()->{zones}{z}{generation};

my $used = 'while previously it used';

for my $case ([ 'zone=z:2m max_peers=8',
                qr/"z" uses max_peers=8 $used max_peers=64/ ],
              [ 'zone=z:2m; nonsense', qr/unknown directive "nonsense"/ ])
{
    my ($zone, $re) = @$case;

    conf($zone, \@three);
    $t->expect_log(qr/\[emerg\].*$re/);
    kill 'HUP', $t->{master};
    ok(wait_for(sub { $t->log() =~ $re }), "$zone: refused");
    is(ask(1)->{reason}, 'affinity', "$zone: the old one continues");
}

# the same for memory whose layout is not this module's

{
    my $flip = sub {
        open my $maps, '<', "/proc/$t->{master}/maps" or die "maps: $!";

        no warnings 'portable';

        # it is one file, and can be mapped in several pieces

        my (%start, %size);

        while (<$maps>) {
            my ($from, $to, $inode) =
                /^([0-9a-f]+)-([0-9a-f]+) rw-s \S+ \S+ (\d+)/ or next;
            $start{$inode} //= hex $from;
            $size{$inode} += hex($to) - hex($from);
        }

        my ($from) = map { $start{$_} }
                     grep { $size{$_} == 2 << 20 } keys %size;

        open my $mem, '+<:raw:unix', "/proc/$t->{master}/mem"
            or die "mem: $!";

        # the slab pool's header has its own address after that of its data

        sysseek $mem, $from, 0;
        sysread $mem, my $head, 4096;

        my @words = unpack 'Q*', $head;
        my ($i) = grep { $words[$_] == $from && $words[$_ - 1] > $from
                         && $words[$_ - 1] < $from + (2 << 20) }
                  1 .. $#words;

        sysseek $mem, $words[$i - 1], 0;
        sysread $mem, my $layout, 8;
        sysseek $mem, $words[$i - 1], 0;
        syswrite $mem, pack('Q', 1 ^ unpack 'Q', $layout);
    };

    my $re = qr/"z" was made by another version of the module, restart nginx/;

    $flip->();
    conf('zone=z:2m', \@three);
    $t->expect_log($re);
    kill 'HUP', $t->{master};
    ok(wait_for(sub { $t->log() =~ $re }), 'another layout: refused');
    is(ask(1)->{reason}, 'affinity', 'another layout: the old one continues');
    $flip->();
}

is($t->status()->{zones}{z}{generation}, $generation, 'no new generation');

$t->reload();
is($t->status()->{zones}{z}{generation}, $generation + 1, 'its own layout');
is(ask(1)->{reason}, 'affinity', 'its own layout: all is kept');

# the module from another path: nginx gives it new memory

{
    my $module = $t->{module};

    $t->{module} = "$t->{dir}/module.so";
    Kvroute::write_file($t->{module}, Kvroute::slurp($module));

    conf('zone=z:2m', \@three);
    $t->reload();

    like($t->log(), qr/"z" was made by another module and starts empty/,
         'another module is logged');
    is(ask(1)->{matched}, 0, 'and starts cold');

    # optional modules would be bound to the router that is still in use

    $t->{module} = $module;

    if ($t->modules() > 1) {
        my $re = qr/module "ngx_http_kvroute_\w+" cannot be loaded while "ngx_http_kvroute_module" of another path is still in use/;

        $t->expect_log($re);
        conf('zone=z:2m', \@three);
        kill 'HUP', $t->{master};
        ok(wait_for(sub { $t->log() =~ $re }), 'back with optional modules: refused');
        is(ask(1)->{reason}, 'affinity', 'the old configuration continues');
    }

    {
        local $ENV{KVROUTE_MODULES} = 'router';

        conf('zone=z:2m', \@three);
        $t->reload();
        is(ask(1)->{matched}, 0, 'back with the router: starts cold');
    }
}

# another size starts cold, and logs it

conf('zone=z:3m', \@three);
$t->reload();
like($t->log(), qr/"z" was resized from 2097152 to 3145728 and starts empty/,
     'a new size is logged');
is(ask(1)->{matched}, 0, 'and starts cold');
is($t->status()->{zones}{z}{size}, 3145728, 'status: new size');

# slots that an old worker keeps are reused when it has exited

{
    conf('zone=z:4m max_peers=3', [qw(B0 B1)]);
    $t->reload();

    my $s = $t->start('POST /', $body{1}, headers =>
                      { map { ("X-$_" => 'wait numbers') } qw(B0 B1) });
    wait_for(sub { ($t->load())[0] == 1 });

    conf('zone=z:4m max_peers=3', [qw(B2 B3)]);
    $t->reload();

    my $numbered = sub {
        return scalar grep { defined $_->{id} }
                           @{$t->status()->{upstreams}{u}{peers}};
    };

    is($numbered->(), 1, 'as many as there are slots');
    like($t->log(), qr/"z" has no slot for 1 servers of upstream "u",.*max_peers.*before a reload/,
         'the log names the limit');
    is($t->post('/', $body{2})->{status}, 200, 'served') for 1 .. 4;

    $t->step('numbers');
    is($t->finish($s)->{status}, 200, 'the old worker is done');

    # each worker checks on its own, and any can answer

    ok(wait_for(sub {
        return !grep { $numbered->() != 2 } 1 .. 8 * $t->{workers};
    }), 'then all have a slot');
    like($t->log(), qr/"z" has a slot for each server of upstream "u" now/,
         'which is logged');
}

# a server gets its slot while a request is at another one: the retry goes there

{
    my $known = chat(text(30_000, 10));

    conf('zone=z:5m max_peers=2', ['B0']);
    $t->reload();
    is($t->post('/', $known)->{status}, 200, 'the first knows a prompt');

    conf('zone=z:5m max_peers=2', [qw(B0 B1)]);
    $t->reload();

    # the request ends at a server that the next configuration does not have

    my $s = $t->start('POST /', chat('x'), headers =>
                      { 'X-B0' => 'close', 'X-B1' => 'wait later' });
    wait_for(sub { $t->peer('u', $t->{vars}{B1})->{active} });

    conf('zone=z:5m max_peers=2', [qw(B0 B2)]);
    $t->reload();

    my $r = $t->start('POST /', $known, headers => { 'X-B0' => 'lose it' });
    wait_for(sub { $t->peer('u', $t->{vars}{B0})->{active} });

    $t->step('later');
    is($t->finish($s)->{status}, 200, 'the old worker is done again');
    ok(wait_for(sub {
        2 == grep { defined $_->{id} } @{$t->status()->{upstreams}{u}{peers}}
    }), 'all have a slot again');

    $t->step('it');
    is($t->finish($r)->{headers}{'x-backend'}, 'B2', 'and can get a retry');
}

# the module is switched off by one line, and on again

$t->{vars}{OFF} = '#';
conf('zone=z:3m', \@three);
$t->reload();
is($t->post('/', $body{1})->{status}, 200, 'another zone');
my $conf = Kvroute::slurp("$t->{dir}/nginx.conf");
Kvroute::write_file("$t->{dir}/nginx.conf",
                    $conf =~ s/kvroute kv_cache zone=z;//r);
$t->reload();
is($t->post('/', $body{1})->{status}, 200, 'without kvroute: served');
Kvroute::write_file("$t->{dir}/nginx.conf", $conf);
$t->reload();
cmp_ok(ask(1)->{matched}, '>', 5000, 'with it again: still known');

# twenty reloads under load

{
    my $stop = "$t->{dir}/stop";
    my @pids;

    for my $i (1 .. 3) {
        my $pid = fork();
        if ($pid == 0) {
            my ($ok, $bad) = (0, 0);
            while (!-e $stop) {
                my $r = $t->post('/', $body{1 + ($ok + $i) % 9});
                $r->{status} == 200 ? $ok++ : $bad++;
            }
            Kvroute::write_file("$t->{dir}/client$i", "$ok $bad\n");
            POSIX::_exit(0);
        }
        push @pids, $pid;
    }

    $t->reload() for 1 .. 20;
    Kvroute::write_file($stop, '');
    waitpid($_, 0) for @pids;

    my ($ok, $bad) = (0, 0);
    for my $i (1 .. 3) {
        my ($o, $b) = split ' ', Kvroute::slurp("$t->{dir}/client$i");
        $ok += $o;
        $bad += $b;
    }

    cmp_ok($ok, '>', 0, "$ok requests over 20 reloads");
    is($bad, 0, 'none failed');
}

ok($t->idle(), 'the counters are back at zero');
ok(wait_for(sub { $t->workers() == $t->{workers} }), 'old workers are gone');
is($t->status()->{zones}{z}{processes}, $t->{workers}, 'and their rows');

# rows for all processes: as many as there can be workers over reloads

{
    my ($before, $re) = ($t->{workers}, qr/"z" has rows for 128 processes, /);
    my $rows = sub { $t->status()->{zones}{z}{max_processes} };

    is($rows->(), 128, 'rows of few workers');
    ask(1);

    $t->{workers} = 33;
    conf('zone=z:3m', \@three);
    $t->reload();
    is($rows->(), 128, 'rows stay over a reload');
    is(ask(1)->{reason}, 'affinity', 'and all else stays');
    ok($t->log() =~ /\[warn\].*${re}its workers need 148/,
       'a warning if they may be too few');

    conf('zone=z:4m', \@three);
    $t->reload();
    is($rows->(), 148, 'a new zone has rows for this many workers');

    $t->{workers} = $before;
    conf('zone=z:4m', \@three);
    $t->reload();
    is(() = $t->log() =~ /$re/g, 1, 'no warning if there are enough');
}

$t->done();
