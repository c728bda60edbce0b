#!/usr/bin/perl

# Index updates: they stay once the engine has answered, even if no client or
# filter gets the answer; and updates by one policy are right for the others.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 1;

# a page that includes the engine's answer as a variable

$t->serve('P', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {
        my ($way) = $head =~ m{^\S+ /page/(\w+)};
        my $page = qq(it says: <!--# include virtual="/$way/?n=sub" set="v" )
                   . qq(--><!--# echo var="v" encoding="none" -->.);

        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
                     . "Content-Length: " . length($page) . "\r\n\r\n$page");
    }
});

$t->upstream('e', 'kvroute kv_cache zone=z capacity=64k;',
             'B0 B1 max_fails=0');

$t->conf(<<'EOF')->run();
    log_format kv '$arg_n $kvroute_matched_bytes $kvroute_best_bytes';
    access_log %%DIR%%/access.log kv;
    log_subrequest on;

    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_method POST;

    location /page/ { ssi on; proxy_pass http://127.0.0.1:%%P%%; }
    location /e/ { proxy_pass http://e; }
    location /closed/ { proxy_set_header Connection close;
                        proxy_pass http://e; }
    location /stream/ { proxy_buffering off; proxy_pass http://e; }
    location /keep/ { proxy_ignore_client_abort on;
                      proxy_pass http://e; }
    location /keepstream/ { proxy_ignore_client_abort on;
                            proxy_buffering off; proxy_pass http://e; }
    location /store/ { proxy_store %%DIR%%/store-$arg_n;
                       proxy_pass http://e; }
    location /auto/ { kvroute_policy sticky key=auto;
                      proxy_pass http://e; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

my $n = 0;

# the part of a prompt that is known as cached

sub matched {
    my ($body, $uri) = @_;

    $t->post(($uri || '/e/') . '?n=' . ++$n, $body);

    my @line;
    wait_for(sub { @line = $t->access_log() =~ /^$n (\S+)/m; return @line; });

    return $line[0];
}

# --- a response that stays in memory, as a part of a page

for my $way (qw(e closed stream)) {
    my $body = chat(text(6000, ++$n));
    my $r = $t->post("/page/$way", $body);

    like($r->{body}, qr{^it says: B[01] /$way/}, "$way: a page");
    cmp_ok(matched($body), '>', 5000, "$way: its prompt is cached");
}

# an error is not learned

for my $case ('status 500', 'reset') {
    my $body = chat(text(6000, ++$n));

    $t->post("/page/e", $body, headers => { 'X-B0' => $case, 'X-B1' => $case });
    is(matched($body), 0, "$case: nothing is cached");
}

# --- a client that leaves, and nginx continues

for my $way (qw(keep keepstream store)) {
    my $body = chat(text(6000, ++$n));
    my $file = "go-$way";
    my $s = $t->start("POST /$way/?n=gone", $body,
                      headers => { 'X-B0' => "wait $file",
                                   'X-B1' => "wait $file" });

    ok(wait_for(sub { grep { m{^/$way/} } map { $t->backend_log($_) }
                                          qw(B0 B1) }), "$way: asked");
    close $s;
    $t->step($file);

    ok($t->idle(), "$way: answered");
    cmp_ok(matched($body), '>', 5000, "$way: the prompt is cached");
}

# and a client that leaves, and nginx aborts: nothing was computed

{
    my $body = chat(text(6000, ++$n));
    my $s = $t->start('POST /e/left?n=left', $body,
                      headers => { 'X-B0' => 'stall', 'X-B1' => 'stall' });

    ok(wait_for(sub { grep { m{^/e/left} } map { $t->backend_log($_) }
                                           qw(B0 B1) }), 'asked');
    close $s;
    ok($t->idle(), 'aborted');
    is(matched($body), 0, 'nothing is cached');
}

# --- sessions by the body: a known prompt counts only once

{
    my $known = chat(text(6000, ++$n), session_id => 'a');
    my $again = chat(text(6000, ++$n), session_id => 'a');

    matched($known, '/auto/');
    is(matched($again, '/auto/'), 0, 'a session: new');

    for (1 .. 16) {
        cmp_ok(matched($again, '/auto/'), '>', 5000, 'a session: cached');
    }

    cmp_ok(matched($known), '>', 5000,
           'a repeated prompt takes no room');

    my $c = $t->status()->{upstreams}{e}{peers};
    is($_->{cache}{capacity_factor}, 1, 'no capacity is reduced') for @$c;
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
