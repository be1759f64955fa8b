-- Tables are made by one transaction while others with large rows come and go; nobody follows them.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, data text);
-- workload
BEGIN;
CREATE TABLE made_by_a (data text);
-- session b
CREATE TABLE made_by_b (data text);

BEGIN;
INSERT INTO made_by_b SELECT string_agg(md5(g::text), '') FROM generate_series(1, 5000) g;
INSERT INTO t SELECT 1, data FROM made_by_b;
COMMIT;
-- session compare
large rows came
-- session a
INSERT INTO t VALUES (2, 'of a');
COMMIT;
