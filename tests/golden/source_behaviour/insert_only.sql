-- replicate journal insert_only
-- setup
CREATE TABLE journal (at int, what text);
INSERT INTO journal SELECT g, 'copied' FROM generate_series(1, 100) g;
INSERT INTO journal SELECT 1, 'copied';
-- workload
INSERT INTO journal SELECT g, 'logged' FROM generate_series(1, 100) g;

INSERT INTO journal VALUES (1, 'copied'), (NULL, NULL);
-- wait
BEGIN;
INSERT INTO journal VALUES (0, 'undone');
ROLLBACK;

TRUNCATE journal;
INSERT INTO journal VALUES (1, 'fresh');
