#!/usr/bin/perl

# Hosts that route as one: each knows the others' prefixes and requests in
# flight. No request fails, whatever happens to the store, and sharing resumes
# when it returns.

use lib 't/lib';
use Kvroute;
use Kvroute::Store;

use MIME::Base64;
use Time::HiRes qw(sleep);

my @hosts = map { Kvroute->new() } 1 .. 2;
my ($one, $two) = @hosts;

my $store = Kvroute::Store->new($one)
    or plan(skip_all => 'no Redis and no Valkey');

# faults of stores: each has its own store, for its own zone, so all happen at
# the same time

my @faults = (
    [ 'killed, and back empty',
      sub { $_[0]->stop('KILL') }, sub { $_[0]->start() } ],
    [ 'stopped, half open',
      sub { kill 'STOP', $_[0]{pid} }, sub { kill 'CONT', $_[0]{pid} } ],
    [ 'full',
      sub { $_[0]->command(qw(CONFIG SET maxmemory 1)) },
      sub { $_[0]->command(qw(CONFIG SET maxmemory 0)) } ],
    [ 'read-only',
      sub { $_[0]->command(qw(REPLICAOF 127.0.0.1 1)) },
      sub { $_[0]->command(qw(REPLICAOF NO ONE)) } ],
    [ 'with a password',
      sub { $_[0]->command(qw(CONFIG SET requirepass x));
            $_[0]{auth} = ['AUTH', 'x'];
            $_[0]->command(qw(CLIENT KILL TYPE normal)) },
      sub { $_[0]->command('CONFIG', 'SET', 'requirepass', '');
            delete $_[0]{auth} } ],
    [ 'with something else under that key',
      sub { my $k = "kvroute:{$_[1]}";
            $_[0]->command('DEL', $k); $_[0]->command('SET', $k, 'x') },
      sub { $_[0]->command('DEL', "kvroute:{$_[1]}") } ]);

my @stores = map { Kvroute::Store->new($one) } @faults;

my $key = encode_base64(join('', map { chr int rand 256 } 1 .. 192), '');
my $other_key = encode_base64(join('', map { chr int rand 256 } 1 .. 192), '');

for my $name (map { "B$_" } 0 .. 3) {
    $one->backend($name);
    $two->{vars}{$name} = $one->{vars}{$name};
}

sub configure {
    my ($h, %arg) = @_;

    my $file = "$h->{dir}/key";

    Kvroute::write_file($file, $arg{key} // $key);
    chmod 0600, $file;

    # the second host has another order of servers, so other slots

    my @order = $h == $one ? (0 .. 3) : (3, 1, 0, 2);
    $arg{server} //= '';

    my $servers = join "\n", map { "server 127.0.0.1:%%B$_%% $arg{server};" }
                             @order;
    my $zone = $arg{zone} // '';
    my $share = $arg{share} // '';
    my $upstream = $arg{upstream} // '';

    $h->{vars}{STORE} = $store->{port};

    my ($zones, $locations) = ('', '');

    for my $i (0 .. $#stores) {
        last if $arg{key} || $share =~ /trusted/;

        $zones .= <<"EOC";
    kvroute_zone zone=f$i:4m key_file=%%DIR%%/key;
    kvroute_share zone=f$i server=redis://127.0.0.1:$stores[$i]{port} $share;

    upstream f$i {
        zone u$i 256k;
        kvroute kv_cache zone=f$i;
        $servers
    }
EOC
        $locations .= "location /f$i/ { proxy_pass http://f$i/; }\n";
    }

    $h->conf(<<"EOC");
%%LOG%%
    kvroute_zone zone=z:8m key_file=%%DIR%%/key $zone;
    kvroute_share zone=z server=redis://127.0.0.1:%%STORE%% $share;

$zones
    upstream llm {
        zone llm 256k;
        kvroute kv_cache zone=z $upstream;
        $servers
    }
    upstream sticky {
        zone sticky 256k;
        kvroute sticky zone=z;
        $servers
    }

    location / { proxy_pass http://llm; }
    $locations
    location /sticky/ { proxy_pass http://sticky/; }
    location /api/ { kvroute_api write=on; }
EOC

    return $h;
}

# a host whose store rejects its password from the start

my $three = Kvroute->new();
my $refuses = Kvroute::Store->new($one, '--requirepass', 'x');

Kvroute::write_file("$three->{dir}/password", "wrong\n");
Kvroute::write_file("$three->{dir}/key", $key);
chmod 0600, map { "$three->{dir}/$_" } qw(password key);

$three->conf(<<"EOC")->run();
    kvroute_zone zone=z:4m key_file=%%DIR%%/key;
    kvroute_share zone=z server=redis://127.0.0.1:$refuses->{port}
                  password_file=%%DIR%%/password;
    upstream llm {
        zone llm 256k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:$one->{vars}{B0};
    }
EOC

# a host's sharing state, or one of its values

sub share {
    my ($h, $name, $zone) = @_;

    my $share = $h->status()->{zones}{$zone // 'z'}{share};

    return $name ? $share->{$name} : $share;
}

# the colour of an upstream, if a cause is that nothing is shared

sub alone {
    my ($h, $upstream) = @_;

    my $health = $h->status()->{upstreams}{$upstream}{health};

    return (grep { $_->{code} eq 'not_sharing' && $_->{seconds} > 0 }
            @{$health->{why}}) ? $health->{state} : '';
}

sub up {
    my (@h) = @_;

    return wait_for(sub { !grep { !share($_, 'up') } @h });
}

# all updates of one host were applied by the other

sub told {
    my ($from, $to) = @_;

    my $name = share($from, 'name');

    return wait_for(sub {
        my ($host) = grep { $_->{name} eq $name && $_->{alive} }
                     @{share($to, 'hosts')};

        return $host && $host->{lessons} >= share($from, 'lessons_sent')
               && share($from, 'waiting') == 0;
    });
}

sub prompt { return chat(text(6000, $_[0])) }

my $n = 0;

# sends a prompt to one host, then to the other: 1 if that one finds it

sub known {
    my ($from, $to, $zone) = @_;

    my $at = $zone ? "/$zone" : '';

    return wait_for(sub {
        my $before = share($to, 'lessons_applied', $zone);

        $n++;
        $from->post("$at/v1/chat/completions?n=a$n", prompt($n));
        wait_for(sub { share($to, 'lessons_applied', $zone) > $before }, 5)
            or return 0;
        $to->post("$at/v1/chat/completions?n=b$n", prompt($n));

        my ($a, $b) = ($from->receipt("a$n"), $to->receipt("b$n"));

        return $b->{peer} eq $a->{peer} && $b->{matched} > 5000;
    });
}

configure($one, share => 'name=one')->run();
configure($two, share => 'name=two')->run();

ok(up($one, $two), 'each host reads its own batches');

is_deeply([ sort map { $_->{name} } @{share($one, 'hosts')} ], ['two'],
          'the first one hears of the other');

# --- the other stores fail: they recover below

my $failed = 0;

sub serve {
    for my $at (@_) {
        for my $h (@hosts) {
            $n++;
            $failed += $h->post("$at/v1/chat/completions?n=c$n",
                                prompt($n))->{status} != 200;
        }
    }
}

my @zones = map { "f$_" } 0 .. $#faults;

for my $zone (@zones) {
    ok(wait_for(sub { !grep { !share($_, 'up', $zone) } @hosts }), "$zone works");
}

$faults[$_][1]->($stores[$_], $zones[$_]) for 0 .. $#faults;

# index updates, in both directions

my $r = $one->post('/v1/chat/completions?n=first', prompt(1001));
is($r->{status}, 200, 'served');
ok(told($one, $two), 'told');
$two->post('/v1/chat/completions?n=second', prompt(1001));
is($two->receipt('second')->{peer}, $one->receipt('first')->{peer},
   'the other host chooses the same server');
cmp_ok($two->receipt('second')->{matched}, '>', 5000,
       'since it knows what that one holds');

$two->post('/v1/chat/completions?n=third', prompt(1002));
ok(told($two, $one), 'told');
$one->post('/v1/chat/completions?n=fourth', prompt(1002));
is($one->receipt('fourth')->{peer}, $two->receipt('third')->{peer},
   'and the other way');

# sessions

$one->post('/sticky/v1/chat/completions?n=s1', prompt(1003),
           headers => { 'X-Session-Id' => 'abc' });
ok(told($one, $two), 'told');
$two->post('/sticky/v1/chat/completions?n=s2', prompt(1004),
           headers => { 'X-Session-Id' => 'abc' });
is($two->receipt('s2')->{peer}, $one->receipt('s1')->{peer},
   'a session stays where another host has bound it');

# load

my $release = $one->hold(3, '/v1/chat/completions',
                         chat(text(9000, 1005)));

ok(wait_for(sub {
    my $elsewhere = 0;
    $elsewhere += $_->{elsewhere} for @{$two->status()->{upstreams}{llm}{peers}};
    return $elsewhere == 3;
}), 'a request in flight at one host counts at the other');

is(($two->load())[0], 0, 'not as its own');

$release->();

ok(wait_for(sub {
    !grep { $_->{elsewhere} } @{$two->status()->{upstreams}{llm}{peers}};
}), 'until it ends');

# the status shows that sharing works, and each metric

is(share($one, 'gaps'), 0, 'no batch was lost');
is(share($one, 'ignored')->{total}, 0, 'and none was ignored');
cmp_ok(share($one, 'lessons_applied'), '>', 0, 'index updates were applied');

my $metrics = $one->get('/kvroute/metrics')->{body};

is(join(' ', grep { $metrics !~ /^$_[{_]/m } $metrics =~ /^# TYPE (kvroute_share_\w+)/mg),
   '', 'each metric has a series');
like($metrics, qr/^kvroute_share_host_lessons_total\{zone="z",host="two",id="\w{16}"\} [1-9]/m,
     'and index updates by host');

# --- a host that was down, and missed the stream

$two->stop();
ok(wait_for(sub { !share($one, 'others') }), 'a host has left');

$one->post("/v1/chat/completions?n=old", prompt(3001));
ok(wait_for(sub { share($one, 'waiting') == 0 }), 'the index update is in the stream');
$store->command(qw(DEL kvroute:{z}));

$two->run();
ok(up($two), 'the host is back');
ok(wait_for(sub { share($two, 'joined') > 20 && !share($two, 'joining') }),
   'it is told what it has not heard');
$two->post("/v1/chat/completions?n=new", prompt(3001));
cmp_ok($two->receipt('new')->{matched}, '>', 5000, 'it finds the prompt');
is($two->receipt('new')->{peer}, $one->receipt('old')->{peer}, 'at the right server');

# --- the other stores

for my $i (0 .. $#faults) {
    ok(wait_for(sub { serve(map { "/$_" } @zones);
                      !grep { share($_, 'up', $zones[$i]) } @hosts }),
       "$faults[$i][0]: the status: not up");
}

ok(share($one, 'up') && share($two, 'up'), 'the zone with a working store is up');

for my $i (0 .. $#faults) {
    ok(wait_for(sub { alone($one, $zones[$i]) eq 'amber' }),
       "$faults[$i][0]: health is amber, with the cause");
}

ok(wait_for(sub { grep { $_->{code} eq 'not_sharing' && $_->{reason} eq 'refused' }
                  @{$one->status()->{upstreams}{$zones[0]}{health}{why}} }),
   'of a killed store, that it refuses connections');

is(alone($one, 'llm'), '', 'only for these zones');

$faults[$_][2]->($stores[$_], $zones[$_]) for 0 .. $#faults;

for my $i (0 .. $#faults) {
    my ($what, $zone) = ($faults[$i][0], $zones[$i]);

    ok(wait_for(sub { !grep { !share($_, 'up', $zone) } @hosts }),
       "$what: works again");

    is(alone($one, $zone), '', 'and the cause is gone');

    # updates that were held back are published now

    ok(known($one, $two, $zone) && known($two, $one, $zone), "$what: in both directions");
}

is($failed, 0, 'no request has failed');

my @warnings = $one->log() =~ /^.*\[warn\].*kvroute_share.*$/mg;

for my $zone (@zones) {
    is(scalar(grep { /of zone "$zone" is not/ } @warnings), 1, "$zone: one warning")
        or diag(@warnings);
}

# --- the owner of a zone's connections

sub owners { return (sort { $a <=> $b } $one->workers())[0] }

my $gaps = share($two, 'gaps');

for my $i (1 .. 10) {
    my ($worker) = owners();

    $one->start('POST /v1/chat/completions', prompt(2000 + $i)) for 1 .. 3;
    $one->kill_worker($worker);
    wait_for(sub { my ($new) = owners(); $new && $new != $worker });
}

ok(up($one), 'a killed worker is replaced');
ok(known($one, $two) && known($two, $one), 'sharing continues');
is(share($two, 'gaps') - $gaps, 0, 'no batch was lost');

for my $i (1 .. 5) {
    $one->reload();
    serve('');
}

ok(up($one), 'after reloads');
ok(known($one, $two) && known($two, $one), 'sharing continues');
is(share($two, 'gaps') - $gaps, 0, 'no batch was lost');
is($failed, 0, 'no request has failed');

# an owner that was stopped for long has lost its role when it continues

my ($old) = owners();

kill 'STOP', $old;
kill 'HUP', $one->{master};

ok(wait_for(sub { grep { $_ != $old } $one->workers() }), 'a new worker');
ok(known($one, $two) && known($two, $one), 'a new worker replaces a stopped owner');

kill 'CONT', $old;

ok(wait_for(sub { !grep { $_ == $old } $one->workers() }), 'the stopped one exits');
ok(up($one), 'the new one stays the owner');
ok(known($one, $two) && known($two, $one), 'sharing continues');
is(share($two, 'gaps') - $gaps, 0, 'no batch was lost');

# --- hosts that do not match

$two->stop();
configure($two, share => 'name=two', key => $other_key)->run();

ok(wait_for(sub { (share($one, 'ignored')->{key} || 0) > 0 }),
   'a host with another key is ignored');
ok(wait_for(sub { $one->log() =~ /ignoring host "two"/ }),
   'a warning');
ok(wait_for(sub { !grep { $_->{alive} } @{share($one, 'hosts')} }),
   'it is not in the list of hosts');

# entries that are not batches

$store->command('XADD', 'kvroute:{z}', '*', 'b', $_)
    for 'x', "\0" x 100, join('', map { chr int rand 256 } 1 .. 1000);
$store->command('XADD', 'kvroute:{z}', '*', 'a', 1, 'b', 2);

ok(wait_for(sub { share($one, 'ignored')->{no_batch} >= 3 }),
   'other entries are ignored');
ok(up($one), 'sharing works anyway');

# a new worker does not warn again

$two->stop();

sub said { my $re = shift; return scalar(() = $one->log() =~ /$re/g) }

my $works = said('zone "z" works with');
my $ignored = said('ignoring host');

$one->reload();
ok(wait_for(sub { said('zone "z" works with') > $works }), 'a new worker shares');
is(said('ignoring host'), $ignored, 'and does not warn of old batches');

# more than a host accepts in one answer, for a host that reads all

$store->command('XADD', 'kvroute:{z}', '*', 'b', 'x' x 90000) for 1 .. 130;
configure($two, share => 'name=two')->run();

ok(wait_for(sub { share($two, 'ignored')->{no_batch} >= 130 }),
   'a long answer is read in parts');
ok(up($two), 'sharing works');

# --- a store with its own user, over TLS, with the least permissions

SKIP: {
    skip 'needs openssl, and a store and an nginx with TLS', 8
        if system("cd $one->{dir} && openssl req -x509 -newkey rsa:2048 -nodes"
                  . " -keyout tls.key -out tls.crt -days 2 -subj /CN=localhost"
                  . " -addext subjectAltName=DNS:localhost >/dev/null 2>&1");

    my $port = $one->port();
    my $secure = eval {
        Kvroute::Store->new($one, '--tls-port', $port, '--tls-auth-clients', 'no',
                            '--tls-cert-file', "$one->{dir}/tls.crt",
                            '--tls-key-file', "$one->{dir}/tls.key");
    };

    skip 'the store has no TLS', 8 if !$secure;

    $secure->command(qw(ACL SETUSER kvroute on >secret ~kvroute:* resetchannels
                        -@all +auth +xadd +xread +xrevrange));
    $secure->command(qw(ACL SETUSER default off));

    Kvroute::write_file("$one->{dir}/password", "secret\n");
    chmod 0600, "$one->{dir}/password";

    my $conf = sub {
        my ($h, $host, $password) = @_;

        configure($h, share => "name=tls  password_file=$password"
                               . " trusted=$one->{dir}/tls.crt");

        my $text = Kvroute::slurp("$h->{dir}/nginx.conf")
                   =~ s!redis://\S+!rediss://kvroute\@$host:$port!r;
        Kvroute::write_file("$h->{dir}/nginx.conf", $text);
    };

    $two->stop();
    $conf->($two, 'localhost', "$one->{dir}/password");

    my ($good, $out) = $two->check();

    if ($out =~ /ssl module/) {
        $two->expect_log(qr/needs an nginx with its ssl module/);
        skip 'nginx has no TLS', 8;
    }

    ok($good, 'TLS and a password') or diag($out);
    $two->run();
    ok(up($two), 'sharing works');
    $conf->($one, 'localhost', "$one->{dir}/password");
    $one->reload();
    ok(up($one, $two), 'for both hosts, after a reload to another store');
    ok(known($one, $two) && known($two, $one), 'in both directions');

    # the certificate is for another host

    $conf->($two, '127.0.0.1', "$one->{dir}/password");
    $two->reload();
    ok(wait_for(sub { $two->log() =~ /not working with .*certificate/ }),
       'a certificate of another host is logged');

    # a wrong password

    Kvroute::write_file("$two->{dir}/wrong", "wrong\n");
    chmod 0600, "$two->{dir}/wrong";
    $conf->($two, 'localhost', "$two->{dir}/wrong");
    $two->reload();
    ok(wait_for(sub { $two->log() =~ /AUTH failed \(WRONGPASS/ }),
       'a wrong password is logged');
    ok(wait_for(sub { !share($two, 'up') }), 'and neither works');
    unlike($two->log() . $one->log(), qr/secret|"wrong"/, 'passwords are not logged');
}

# --- the host whose password is rejected: counted, and in each warning

cmp_ok(share($three, 'refused'), '>', 0, 'a rejected password is counted');
is(alone($three, 'llm'), 'amber', 'health is amber');

SKIP: {
    skip 'waits a minute, in one run only', 2
        if $ENV{KVROUTE_SANITIZED} || $one->{workers} != 1;

    my @said;

    ok(wait_for(sub {
        @said = $three->log() =~ /^.*\[warn\].* of zone "z" is not.*$/mg;
        return @said > 1;
    }, 90), 'the warning is repeated');

    is(scalar(grep { !/AUTH failed \((?:WRONGPASS|ERR)/ } @said), 0,
       'each time with the reason')
        or diag(@said);
}

$three->quit();
$two->quit();
$one->done();
