-- Rows come by COPY, among many small ones a few with large values, in a large transaction and in a small one.
-- replicate t
-- setup
CREATE TABLE t (id int PRIMARY KEY, data text);
ALTER TABLE t ALTER data SET STORAGE EXTERNAL;
-- workload
COPY t FROM PROGRAM 'for i in $(seq 1 203); do if [ $((i % 100)) -eq 2 ]; then printf "$i\tlarge-%02500d\n" $i; else printf "$i\tsmall $i\n"; fi; done';

UPDATE t SET id = id + 1000 WHERE id % 100 = 2;
-- session compare
all came
-- session a
BEGIN;
COPY t FROM PROGRAM 'for i in $(seq 2000 2040); do printf "$i\tlarge-%05000d\n" $i; done';
SAVEPOINT a;
COPY t FROM PROGRAM 'for i in $(seq 3000 3020); do printf "$i\tlarge-%05000d\n" $i; done';
ROLLBACK TO a;
UPDATE t SET id = -id WHERE id > 2030;
COMMIT;
