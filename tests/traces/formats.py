"""A small made-up file of each format, as its source publishes them."""

from __future__ import annotations

import json
from typing import Any

OWN = """id,submit_s,duration_s,gpus,gpu_type,cores,model,batch_size,priority,share,label:team
b,10,60,2,V100,4,resnet50,64,-1,0,red
a,10,,0,,,,,,,
c,2.5,1e3,1.0,,,vgg,,,yes,
"""
PHILLY_CSV = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:02:55,60.0,2,120.0,11cb48
"""


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{n}" for n in range(count)]} for i, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def philly_job(name: str, submitted: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    known = {"status": "Pass", "vc": "ee9e8c", "user": "u1"}
    return known | {"jobid": name, "attempts": list(attempts), "submitted_time": submitted}


PHILLY = [
    philly_job("b", "2017-10-07 01:11:39",
               attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8, 8),
               attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 8, 8)),
    philly_job("a", "2017-10-07 01:11:09", attempt("2017-10-07 01:12:00", "2017-10-07 01:12:10", 1)),
    philly_job("running", "2017-10-07 01:11:39", attempt("2017-10-07 01:12:00", None, 1)),
    philly_job("never", "2017-10-07 01:11:39"),
    philly_job("cpu", "2017-10-07 01:11:39", attempt("2017-10-07 01:12:00", "2017-10-07 01:12:10")),
]  # fmt: skip

TASKS = """j1,worker,2.0,Terminated,110.0,200.0,600.0,29.296875,50.0,T4
j1,ps,1.0,Terminated,105.0,210.0,150.0,1.0,,
j2,worker,1.0,Terminated,50.0,60.0,600.0,10.0,200.0,V100
j3,worker,1.0,Running,50.0,,600.0,10.0,100.0,V100
j4,ps,1.0,Terminated,50.0,60.0,600.0,10.0,0.0,
"""

OPENB = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p,500,1,1,460,,LS,Running,1,5,2
"""

OPENB_UNTIMED = """name,cpu_milli,memory_mib,num_gpu,gpu_milli
p,500,1,1,460
q,500,1,2,1000
"""

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
12,ua,vcB,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:28,2020-06-09 18:45:36,248,1
11,ub,vcA,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-09 18:42:01,60,0
13,uc,vcA,0,4,1,COMPLETED,2020-06-09 18:41:30,2020-06-09 18:41:30,2020-06-09 18:42:30,60,0
"""

LUCID = """job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration
1,u1,vcA,train,1,4,COMPLETED,2020-09-01 00:01:00,120
2,u2,vcB,probe,8,32,RUNNING,2020-09-01 00:02:00,240
3,u2,vcB,tune,2,8,FAILED,2020-09-01 00:03:00,60
"""
LUCID_FULL = """job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,\
dataset,model,batchsize,amp,speed,gpu_util,gmem_util,gmem
1,u1,vcA,train,1,4,1,COMPLETED,2020-09-01 00:01:00,2020-09-01 00:01:00,2020-09-01 00:03:00,120,0,CIFAR-10,\
ResNet18,64,0,12.5,80.1,30.2,2048
"""

ACME = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
577,u59,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
578,u60,2,16,256,Pretrain,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,\
2023-03-01 01:09:04+08:00,2693,13,43088.0
"""
KALOS = """job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,\
end_time,fail_time,stop_time,duration,queue,gpu_time
dlct,uf7,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,\
2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlcu,uf7,1,8,96,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,,,,2023-05-17 11:30:04+00:00,82,12.0,656.0
"""

GAVEL = (
    "A3C\tpython3 main.py --workers 4\trl\t--max-steps\t0\t25832\t1\t2\t1.5\t129\n"
    "LM (batch size 10)\tpython3 main.py --cuda\tlanguage_modeling\t--steps\t1\t900\t2\t1\t-1.000000\t131\n"
)

GAVEL_SEVEN = (
    "ResNet-50 (batch size 64)\tcd /w && python3 main.py -b 64\t--num_minibatches\t1\t5061\t0.000000\t4\n"
    "A3C\tcd /w && python3 main.py\t--max-steps\t0\t17420\t352.500000\t1\n"
)
GAVEL_SIX = (
    "ResNet-50\tcd /w && python3 main.py -b 64\t--num_minibatches\t5061\t0\t2\n"
    "A3C\tcd /w && python3 main.py\t--max-steps\t17420\t352\t1\n"
    "A3C\tcd /w && python3 main.py\t--max-steps\t0\t360\t1\n"
)
SHOCKWAVE = (
    "LM (batch size 10)\tpython3 main.py --cuda\tlanguage_modeling\t--steps\t1\t13458\t1\tgns\t1\t-1.000000\t141\t0\n"
    "ResNet-18 (batch size 32)\tpython3 main.py\tcifar10\t--num_steps\t1\t14345\t2\tstatic\t1\t-1.000000\t333\t55\n"
)

MURI = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,\
resource_time_1,resource_time_2,priority
0,8,0,1095,gpt2,4,478000,91000,437,0.6,419,49,0
1,16,15340,146,vgg16,16,28100,28000,214,82,75,66,1
"""
TIRESIAS = """job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,0,606,vgg19,164,30
1,8,30,133,vgg11,147,23
"""
SYNERGY = "0,alexnet,.123,3349,4\n1,gnmt,.286,26435,1\n"

SALUS = "job_id,model_name,iterations,submit_time,duration\n0,seq2seq_small,10,1,2\n1,vgg11_25,20,3,4\n"

TOPOLOGY = json.dumps(
    {"0": {"arrival": 1, "gpus": 1, "id": 0, "mem": 2, "minimal_utility": 0.3, "size": "4", "tasks": 1, "type": "a"}}
)

POLLUX = "name,time,application,num_replicas,batch_size\nx,1,cifar10,2,128\ny,3.5,bert,1,12\n"

SACCT = (
    "JobID|JobName|User|Partition|State|Submit|Start|End|Elapsed|AllocTRES|NNodes{end}\n"
    "1|train|ann|a100|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:01:00|01:00:00|gres/gpu=2|1{end}\n"
    "1.batch|batch|||COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:01:00|01:00:00|gres/gpu=2|1{end}\n"
    "2|x|ann|a100|CANCELLED by 7|2026-01-01T00:05:00|Unknown|2026-01-01T00:06:00|00:00:00||1{end}\n"
    "3|x|bob|a100|RUNNING|2026-01-01T00:05:00|2026-01-01T00:06:00|Unknown|02:00:00|gres/gpu=1|1{end}\n"
    "4_1|y|b|a100|CANCELLED by 7|2026-01-01T00:07:00|2026-01-01T00:08:00|2026-01-02T00:08:03|1-00:00:03|gpu:4|2{end}\n"
)
SWF = "; Version: 2.2\n; MaxProcs: 8\n" + "".join(
    f" {job} {submit} 5 {ran} 4 -1 -1 4 200 -1 {status} 3 1 -1 1 -1 -1 -1\n"
    for job, submit, ran, status in ((1, 0, 100, 1), (2, 10, -1, 5), (3, 20, 60, 0))
)
DLRM = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "i_1,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,,,50.0\n"
    "i_2,HN,app_1,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,10.0,12.0,112.0\n"
    "i_3,CN,app_1,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435629.0,1435629.0,1435760.0\n"
    "i_4,HN,app_1,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,20.0,22.0,\n"
)
SPOT = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    "239255,13,A10,20,1,1,0,2764799,HP\n437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot\n7,57,A10,4,0.5,1,3,60,Spot\n"
)
SUPERCLOUD = (
    "id_job,id_user,nodes_alloc,nodelist,cpus_req,partition,state,time_submit,time_start,time_end,tres_alloc\n"
    "11,5,1,['n1'],40,xeon-g6-volta,3,1609500000,1609500060,1609503660,\"1=40,2=300,4=1,1002=2\"\n"
    "12,5,2,['n1' 'n2'],40,xeon-p8,5,1609500001,1609500060,1609500100,\"1=96,4=2\"\n"
    "13,5,1,[],40,xeon-g6-volta,4,1609500002,0,1609500090,\n"
)
PM100 = (
    "job_id,user_id,partition,job_state,submit_time,start_time,end_time,num_gpus_alloc,num_cores_alloc,"
    "num_nodes_alloc,qos\n"
    "1,u,1,COMPLETED,2020-05-05 08:00:00+00:00,2020-05-05 08:01:00+00:00,2020-05-05 09:01:00+00:00,4,128,1,0\n"
    "2,u,1,TIMEOUT,2020-05-05 08:00:10+00:00,2020-05-05 08:01:00+00:00,2020-05-05 08:31:00+00:00,16,512,4,0\n"
)
FUGAKU = (
    "jid,usr,jnam,adt,sdt,edt,nnumr,nnuma\n"
    "a,u1,x,2024-04-01T00:00:00+09:00,2024-04-01T00:01:00+09:00,2024-04-01T01:01:00+09:00,2,2\n"
    "b,u1,x,2024-04-01T00:00:05+09:00,2024-04-01T00:01:00+09:00,2024-04-01T00:02:00+09:00,8,8\n"
)
AZURE = (
    "vm1/+=,s1,d1,0,2591700,99.3,3.4,10.2,Delay-insensitive,4,32\nvm2,s1,d1,300,1500,91.7,3.4,55.0,Unknown,>24,>64\n"
)
GOOGLE = "".join(
    json.dumps(
        {
            "time": str(seconds * 10**6), "type": kind, "collection_id": "373", "scheduling_class": 2,
            "collection_type": 0, "priority": 200, "instance_index": str(index), "machine_id": "0",
            "resource_request": {"cpus": 0.02, "memory": 0.01},
        }
    ) + "\n"
    for seconds, kind, index in (
        (600, 0, 0), (600, 0, 1), (601, 2, 0), (610, 3, 0), (615, 3, 1), (700, 4, 0), (720, 3, 0),
        (900, 6, 0), (901, 9, 1),
    )
)  # fmt: skip
FILES = {
    "colane": OWN,
    "philly-csv": PHILLY_CSV,
    "philly-json": json.dumps(PHILLY),
    "alibaba-2020": TASKS,
    "alibaba-2023": OPENB,
    "helios": HELIOS,
    "lucid": LUCID,
    "acme": ACME,
    "gavel": GAVEL,
    "shockwave": SHOCKWAVE,
    "muri": MURI,
    "tiresias": TIRESIAS,
    "synergy": SYNERGY,
    "salus": SALUS,
    "topology": TOPOLOGY,
    "pollux": POLLUX,
    "sacct": SACCT.format(end=""),
    "swf": SWF,
    "alibaba-2025": DLRM,
    "alibaba-spot": SPOT,
    "supercloud": SUPERCLOUD,
    "pm100": PM100,
    "f-data": FUGAKU,
    "azure-vm": AZURE,
    "google-2019": GOOGLE,
}
"""By the name of the format."""

VARIANTS = {
    "alibaba-2023, without times": OPENB_UNTIMED,
    "lucid, full": LUCID_FULL,
    "acme, kalos": KALOS,
    "gavel, seven columns": GAVEL_SEVEN,
    "gavel, six columns": GAVEL_SIX,
}
"""Other layouts of these formats, by the name of the format and what is other."""
